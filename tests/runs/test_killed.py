"""Training processes that are stopped or killed, their run folder on another disk than /tmp."""

import json
import os
import random
import re
import shlex
import shutil
import signal
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
from wordle_rl.runs.checkpoints import CheckpointStore, step_of
from wordle_rl.runs.paths import ROOT

# Other processes may slow these. In seconds and in one process: tests/training/test_resume.py.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("quiet")]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than the temporary one, where there is one."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev
    path = Path(tempfile.mkdtemp(dir=memory if usable else tmp_path))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts the training command, in a group of processes of its own as a terminal would."""
    processes: list[subprocess.Popen[str]] = []

    def start(*overrides: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, "train.py", *overrides],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def read_to(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    assert any(text in line for line in process.stdout), f"the run ended without {text!r}"


@pytest.mark.parametrize(
    ("signum", "code", "devices"), [(signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 2)]
)
def test_the_command_that_a_stopped_run_names_finishes_it(
    signum, code, devices, tmp_path, root, started: Start
):
    overrides = settings(tmp_path, "grpo with a reference")
    process = started(*overrides, f"backend.devices={devices}", f"output_dir={root}")
    read_to(process, "step 1/")
    os.killpg(process.pid, signum)
    out, _ = process.communicate(timeout=600)  # until no process is left to write anything
    assert process.returncode == code
    [folder] = root.iterdir()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "interrupted"
    [command] = re.findall(r"python (train\.py resume=.*)", out)
    subprocess.run([sys.executable, *shlex.split(command)], cwd=ROOT, check=True)
    _, reference = run(root, *overrides)
    (assert_equal_runs if devices == 1 else assert_close_runs)(folder, reference)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the processes in /proc")
@pytest.mark.parametrize("first", [True, False])
def test_when_one_of_two_processes_is_killed_the_other_ends(first, tmp_path, root, started: Start):
    overrides = [*settings(tmp_path, "sft"), "trainer.steps=10000", "backend.devices=2"]
    process = started(*overrides, f"output_dir={root}")
    read_to(process, "step 1/")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [child] = [
        int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(process.pid if first else child, signal.SIGKILL)
    _, err = process.communicate(timeout=600)
    assert process.returncode == (-signal.SIGKILL if first else 1)
    assert first or "error: process 1 ended with exit code -9" in err
    [folder] = root.iterdir()
    resume(folder, f"trainer.steps={newest_step(root) + 1}", "backend.devices=1")


def newest_step(root: Path) -> int:
    """Step of the checkpoint to go on from, whose files are whole; -1 before there is any."""
    for folder in root.iterdir():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store = CheckpointStore(folder / "checkpoints", read_only=True)
            checkpoint = store.load_latest()
        return -1 if checkpoint is None else step_of(checkpoint)
    return -1


def whole_lines(root: Path) -> list[str]:
    """The metrics of each step that was logged."""
    texts = [path.read_text() for path in root.glob("*/metrics.jsonl")]
    return [line for text in texts for line in text.splitlines(keepends=True) if line[-1] == "\n"]


@pytest.mark.parametrize("kills", [1, 10])
def test_killed_at_random_moments_a_run_equals_one_that_was_not(
    kills, tmp_path, root, started: Start
):  # row 22
    overrides = [*settings(tmp_path, "grpo with a reference"), f"trainer.steps={5 * kills}"]
    (tmp_path / "runs").mkdir()
    _, reference = run(tmp_path / "runs", *overrides)
    chance = random.Random(3)
    for number in range(kills):
        step, lines = newest_step(root), whole_lines(root)
        args = [f"resume={folder}" for folder in root.iterdir()]
        process = started(*(args or [*overrides, f"output_dir={root}"]))
        steps = 2 if number == 0 else chance.choice([1, 3])
        read_to(process, f"step {step + steps}/")
        time.sleep(chance.uniform(0.0, 0.3))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        # It went on from the newest checkpoint: what was logged up to there stays as it was.
        assert whole_lines(root)[: step + 1] == lines[: step + 1]
        assert newest_step(root) >= step + steps - 2  # every second step is kept
    [folder] = root.iterdir()
    resume(folder)
    assert [m["step"] for m in metrics_of(folder)] == list(range(5 * kills + 1))
    assert_equal_runs(folder, reference)
