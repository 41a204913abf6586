"""Training processes that are stopped or killed, their run folder on another disk than /tmp."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.runs import (
    assert_close_runs,
    assert_equal_runs,
    metrics_of,
    resume,
    run,
    settings,
)
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.paths import ROOT

# Other processes may slow these.
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("quiet")]
# Children start from a process that has imported everything, so that a start takes no seconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["wordle_rl.backends.torch.backend", "wordle_rl.commands.train"])


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than the temporary one, where there is one."""
    memory = Path("/dev/shm")
    other = memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev
    path = Path(tempfile.mkdtemp(dir=memory if other else tmp_path))
    yield path
    shutil.rmtree(path)


# -- signals --------------------------------------------------------------------------------------


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the training command, in a group of processes of its own as a terminal would."""
    processes: list[subprocess.Popen[str]] = []

    def start(*overrides: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, "train.py", *overrides],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            )
        )  # fmt: skip
        return processes[-1]

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def read_to(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the run ended without {text!r}")


@pytest.mark.slow  # in seconds: test_resume.py, in one process
@pytest.mark.parametrize(
    ("signum", "code", "devices"), [(signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 2)]
)
def test_the_command_that_a_stopped_run_names_finishes_it(
    signum, code, devices, tmp_path, root, started
):
    given = settings(tmp_path, "grpo with a reference")
    process = started(*given, f"backend.devices={devices}", f"output_dir={root}")
    read_to(process, "step 1 ")
    os.killpg(process.pid, signum)
    out, _ = process.communicate(timeout=600)  # until no process is left to write anything
    assert process.returncode == code
    [folder] = root.iterdir()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "interrupted"
    [command] = re.findall(r"python (train\.py resume=.*)", out)
    subprocess.run([sys.executable, *shlex.split(command)], cwd=ROOT, check=True)
    _, unbroken = run(root, *given)
    (assert_equal_runs if devices == 1 else assert_close_runs)(folder, unbroken)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the processes in /proc")
@pytest.mark.parametrize("first", [True, False])
def test_when_one_of_two_processes_is_killed_the_other_ends(first, tmp_path, root, started):
    given = [*settings(tmp_path, "sft"), "trainer.steps=10000", "backend.devices=2"]
    process = started(*given, f"output_dir={root}")
    read_to(process, "step 1 ")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [other] = [
        int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(process.pid if first else other, signal.SIGKILL)
    _, err = process.communicate(timeout=600)
    assert process.returncode == (-signal.SIGKILL if first else 1)
    assert first or "error: process 1 ended with exit code -9" in err
    [folder] = root.iterdir()
    assert newest_step(root) >= 0
    resume(folder, f"trainer.steps={newest_step(root) + 1}", "backend.devices=1")


# -- kill -9 --------------------------------------------------------------------------------------


def train_apart(root: Path, given: list[str], temporary: Path) -> None:
    """In a process of its own: go on with the run in root, or start one."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1), os.dup2(nowhere, 2)
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    if folders := list(root.iterdir()):
        resume(*folders)
    else:
        run(root, *given)


def newest_step(root: Path) -> int:
    """Step of the checkpoint to go on from, whose files are whole; -1 before there is any."""
    for folder in root.iterdir():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store = CheckpointStore(folder / "checkpoints", read_only=True)
            checkpoint = store.load_latest()
        return -1 if checkpoint is None else checkpoint.step
    return -1


def whole_lines(root: Path) -> list[str]:
    """The metrics of each step that was logged."""
    texts = [path.read_text() for path in root.glob("*/metrics.jsonl")]
    return [line for text in texts for line in text.splitlines(keepends=True) if line[-1] == "\n"]


def number_of_file(root: Path) -> int | None:
    """Of the metrics on the disk; another one once a resumed run has cut them back."""
    return next((path.stat().st_ino for path in root.glob("*/metrics.jsonl")), None)


def kill_after(steps: int, delay: float, root: Path, *task: object) -> None:
    """Go on with the run until it has logged this many steps, wait for some seconds, kill it."""
    kept, before = newest_step(root), number_of_file(root)
    process = PROCESSES.Process(target=train_apart, args=(root, *task))
    process.start()
    while steps and (number_of_file(root) == before or len(whole_lines(root)) <= kept + steps):
        assert process.is_alive(), "the run ended before it was killed"
        time.sleep(0.01)
    time.sleep(delay)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    "kills", [pytest.param(n, id=str(n), marks=pytest.mark.slow) for n in (1, 10)]
)
def test_killed_at_random_moments_a_run_equals_one_that_was_not(kills, tmp_path, root):  # row 22
    given = [*settings(tmp_path, "grpo with a reference"), f"trainer.steps={5 * kills}"]
    (tmp_path / "runs").mkdir()
    (tmp_path / "temporary").mkdir()
    _, unbroken = run(tmp_path / "runs", *given)
    usual = statistics.median(m["time/step"] for m in metrics_of(unbroken)[1:])
    chance = random.Random(3)
    for number in range(kills):
        kept, logged = newest_step(root), whole_lines(root)
        steps = 2 if number == 0 else chance.choice([0, 1, 3])
        kill_after(steps, chance.uniform(0.0, 2 * usual), root, given, tmp_path / "temporary")
        # It went on from the newest checkpoint: what was logged up to there stays as it was.
        assert whole_lines(root)[: kept + 1] == logged[: kept + 1]
        assert newest_step(root) >= kept + steps - 2  # every second step is kept
    [folder] = root.iterdir()
    resume(folder)
    assert [m["step"] for m in metrics_of(folder)] == list(range(5 * kills + 1))
    assert_equal_runs(folder, unbroken)
    assert list((tmp_path / "temporary").iterdir()) == []
