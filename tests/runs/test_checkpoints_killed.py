"""Checkpoints whose writer fails or is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.checkpoints import newest, steps, write
from wordle_rl.runs import files as json_files
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.paths import ROOT


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_older_checkpoints_and_nothing_else(store, error):
    store.save(1, write("a"))

    def fail(folder):
        write("b")(folder)
        raise error

    for step in (1, 2):
        with pytest.raises(type(error)):
            store.save(step, fail)
        assert {path.name for path in store.folder.iterdir()} == {"step_000001"}
        assert newest(store) == (1, "a")


@pytest.mark.parametrize("again", [True, False])
def test_a_failure_at_any_system_call_leaves_one_whole_checkpoint(tmp_path, monkeypatch, again):
    functions = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "mkdir")}
    for number in range(100):
        store = CheckpointStore(tmp_path / str(number))
        store.save(1, write("old"))
        if again:
            store.save(2, write("replaced"))
        calls = iter(range(1000))

        def wrap(name, calls=calls, number=number):
            def call(*arguments, **options):
                if next(calls) == number:
                    raise OSError(28, "No space left on device")
                return functions[name](*arguments, **options)

            return call

        failed = False
        with monkeypatch.context() as patch:
            for name in functions:
                patch.setattr(os, name, wrap(name))
            try:
                store.save(2, write("new"))
            except OSError:
                failed = True
        assert not list(store.folder.glob(".tmp_*"))
        content = newest(CheckpointStore(store.folder))[1]
        assert content in ("old", "replaced", "new") if failed else content == "new"
        if not failed:
            assert number > 8  # the loop met every call of a save
            return
    raise AssertionError("saving never succeeded")


SCRIPT = """
import os, signal, sys
from pathlib import Path
from wordle_rl.runs.checkpoints import CheckpointStore
store = CheckpointStore(sys.argv[1])
def write(folder):
    (folder / "state.json").write_text("new")
    if sys.argv[2] == "write":
        os.kill(os.getpid(), signal.SIGKILL)
rename, count = Path.rename, 0
def killing(self, target):
    global count
    count += 1
    if f"rename {count}" == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
Path.rename = killing
store.save(2, write)
"""


@pytest.mark.parametrize("moment", ["write", "rename 1", "rename 2"])
def test_a_kill_while_a_step_is_replaced_leaves_the_one_before(store, moment):
    store.save(1, write("old"))
    store.save(2, write("replaced"))
    command = [sys.executable, "-c", SCRIPT, str(store.folder), moment]
    result = subprocess.run(command, cwd=ROOT, check=False)
    assert result.returncode == -signal.SIGKILL
    assert list(store.folder.glob(".tmp_*"))
    reader = CheckpointStore(store.folder)
    survivor = (1, "old") if moment == "rename 2" else (2, "replaced")
    assert newest(reader) == survivor and len(steps(reader)) == survivor[0]


def test_files_reach_the_disk_before_the_checkpoint_gets_its_name(store, monkeypatch):
    paths, rename = [], Path.rename

    def fsync(descriptor):
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def check_rename(self, target):
        tails = {Path(name).relative_to(self).as_posix() for name in paths if str(self) in name}
        assert {".", "adapter", "adapter/weights.bin", "state.json"} <= tails
        return rename(self, target)

    monkeypatch.setattr(json_files.os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", check_rename)
    store.save(1, write("a"))
    assert str(store.folder) in paths
