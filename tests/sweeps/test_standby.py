"""The process of the next trial waits for its arguments, and never outlives its study."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from wordle_rl.sweeps.child_run import _Child
from wordle_rl.sweeps.standby import Standby

# Says that it is there, then takes an order as wordle_rl.standby does.
WAITING = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
line = sys.stdin.readline()
if line:
    order = json.loads(line)
    with open(order["log"], "a") as log:
        print(*order["arguments"], os.environ["OMP_NUM_THREADS"], file=log)
    sys.exit(7)
"""


@pytest.fixture
def standby(tmp_path: Path):
    made = Standby([sys.executable, "-c", WAITING, str(tmp_path / "there")])
    yield made
    made.close()


def there(folder: Path) -> int:
    """The process that waits, once it does."""
    end = time.monotonic() + 120
    while not (text := (folder / "there").read_text() if (folder / "there").exists() else ""):
        assert time.monotonic() < end
        time.sleep(0.01)
    return int(text)


def alive(process: int) -> bool:
    return Path(f"/proc/{process}/cmdline").exists()


def test_a_run_takes_the_process_that_waits_and_gets_its_exit_code(standby, tmp_path):
    standby.prepare(3)
    there(tmp_path)
    child = _Child(["train.py", "seed=1"], tmp_path / "output.log", 3, standby.take(3))
    while child.running(0.1):
        pass
    assert child.code == 7
    assert (tmp_path / "output.log").read_text() == "train.py seed=1 3\n"
    child.stop()
    assert standby.take(3) is None, "each process runs once"


def test_a_process_with_another_number_of_threads_is_ended(standby, tmp_path):
    standby.prepare(1)
    process = there(tmp_path)
    assert standby.take(2) is None
    assert not alive(process)


def test_a_study_that_ends_ends_the_process_that_waits(standby, tmp_path):
    standby.prepare(1)
    standby.prepare(1)  # there is one already
    process = there(tmp_path)
    standby.close()
    assert not alive(process)


def test_a_process_that_has_died_is_replaced_by_a_new_one(standby, tmp_path):
    standby.prepare(1)
    there(tmp_path)
    waiting = standby.take(1)
    assert waiting is not None and waiting.stdin is not None
    waiting.kill()
    waiting.wait()
    echo = [sys.executable, "-c", "print('fresh')"]
    child = _Child(echo, tmp_path / "output.log", 1, waiting)
    while child.running(0.1):
        pass
    assert (child.code, (tmp_path / "output.log").read_text()) == (0, "fresh\n")
    child.stop()
