"""Run folders, their manifest and their lock."""

import os
import shlex
import signal
import subprocess
import sys
from datetime import datetime
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from wordle_rl.runs.config import quoted
from wordle_rl.runs.files import FolderError
from wordle_rl.runs.folder import RunFolder, given_name
from wordle_rl.runs.paths import ROOT, command


@pytest.mark.parametrize("place", [ROOT, ROOT / "docs"])
@pytest.mark.parametrize("activated", [True, False])
def test_a_printed_command_starts_the_environment_that_runs_from_where_one_is(activated, place):
    folder = os.path.dirname(sys.executable)
    path = os.pathsep.join([folder] * activated + ["/usr/bin", "/bin"])
    print_it = (
        "from wordle_rl.runs.paths import TRAIN, runnable; print(TRAIN, runnable('wordle-rl'))"
    )
    options = {"cwd": place, "env": {"PATH": path, "PYTHONPATH": str(ROOT)}, "text": True}
    text = subprocess.check_output([sys.executable, "-c", print_it], **options)
    python, script, program = shlex.split(text)
    assert (place / script).samefile(ROOT / "train.py")
    find_it = [f"{shlex.quote(python)} -c 'import sys; print(sys.prefix)'; command -v {program}"]
    prefix, binary = subprocess.check_output(["sh", "-c", *find_it], **options).split()
    assert prefix == sys.prefix and os.path.dirname(place / binary) == folder
    assert (python, program) == ("python", "wordle-rl") or not activated


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "outputs", "tiny")


def with_manifest(run, **entries):
    digests = {"answers": "ab12"}
    run.write_manifest(seeds={"train": 7}, digests=digests, command=["train.py", "x=1"], **entries)
    return run


def test_a_run_is_named_by_date_time_and_name(tmp_path):
    run = RunFolder.create(tmp_path, "qwen3b", now=datetime(2025, 3, 4, 5, 6, 7))
    assert run.path.name == "20250304-0506_qwen3b"
    assert given_name(run.path.name) == "qwen3b"
    for name in ("../../up", "", "...", "x" * 500, "ünï ✓"):
        assert RunFolder.create(tmp_path, name).path.parent == tmp_path


NAMES = ["runs/a", "lr=1e-3 try", "it's", 'a "b"', "(a)[b]{c},d:e~f", "$x`y`!z", "a\\b", "c\\"]


@pytest.mark.parametrize("name", NAMES)
def test_a_printed_command_names_the_same_folder_when_it_is_pasted(name):
    word = shlex.split(command("python train.py", "resume", name))[-1]
    [override] = OverridesParser.create().parse_overrides([quoted(word)])
    assert str(getattr(override.value(), "text", override.value())) == name


def test_runs_that_start_together_get_a_folder_each(tmp_path):
    def start(_: int) -> str:
        return RunFolder.create(
            tmp_path / "new" / "outputs", "demo", now=datetime(2025, 3, 4)
        ).path.name

    with ThreadPool(8) as threads:
        names = threads.map(start, range(40), chunksize=1)
    ends = ["", *(f"-{number}" for number in range(2, 41))]
    assert sorted(names) == sorted(f"20250304-0000{end}_demo" for end in ends)
    assert set(map(given_name, names)) == {"demo"}


def test_the_manifest_tells_what_is_needed_to_run_again_and_what_happened_since(run):
    manifest = with_manifest(run, protocol="split").manifest()
    assert (manifest["seeds"], manifest["digests"]) == ({"train": 7}, {"answers": "ab12"})
    assert (manifest["status"], manifest["protocol"]) == ("running", "split")
    assert manifest["versions"]["numpy"] == np.__version__
    assert datetime.fromisoformat(manifest["started"]).tzinfo is not None
    run.note_computing({"threads": 1})
    run.note_resume(step=5, command=["train.py"], changes={"lr": [1e-3, 1e-4]})
    assert RunFolder.open(run.path).computing() == {"threads": 1}
    run.note_resume(step=9, command=["train.py"], changes={})
    run.note_computing({"threads": 2})
    run.set_status("finished")
    after = run.manifest()
    assert run.computing() == {"threads": 2} and after["started"] == manifest["started"]
    assert (after["status"], [r["step"] for r in after["resumes"]]) == ("finished", [5, 9])


HOLD = """
import sys, time
from wordle_rl.runs.folder import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_process_cannot_train_in_a_folder_until_the_first_is_dead(run):
    with_manifest(run)
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(FolderError, match=str(holder.pid)) as error, run.lock():
                pass
            assert str(run.path) in str(error.value)
        finally:
            holder.send_signal(signal.SIGKILL)
        holder.wait()
    with run.lock(), pytest.raises(FolderError), run.lock():
        pass
    with run.lock():
        pass
