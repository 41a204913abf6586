"""A full disk ends a command in one line, and what was written before it stays whole."""

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.commands import contents, training
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("quiet")


WRITERS: dict[str, Callable[[Path], object]] = {
    "metrics": lambda r: StepLog(r / "metrics.jsonl").append(3, {"a": "a" * 9999}),
    "manifest": lambda r: RunFolder(r).note_resume(step=3, command=["a" * 9999], changes={}),
    "checkpoint": lambda r: CheckpointStore(r / "checkpoints").save(
        2, lambda folder: (folder / "state.json").write_text("a" * 9999) and None
    ),
}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond size bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_leaves_what_was_there(kind: str, run: Path, refused) -> None:
    write = WRITERS[kind]
    before = contents(run)
    with largest_file((run / "metrics.jsonl").stat().st_size):
        assert "File too large: make room, then continue with" in refused(lambda: write(run))
    assert json.loads((run / "manifest.json").read_text())["status"] == "finished"
    StepLog(run / "metrics.jsonl").truncate_after(2)  # a torn last line, as the next start does
    assert contents(run) == before
    store = CheckpointStore(run / "checkpoints", read_only=True)
    assert store.load_latest() == store.folder / "step_000002"


def test_a_run_that_filled_the_disk_goes_on_when_there_is_room(run: Path, refused) -> None:
    files = contents(run / "checkpoints")
    weights = (run / "model" / "model.safetensors").stat().st_size
    with largest_file(weights + 1000):  # enough for the weights, not for the optimiser's state
        line = refused(training(f"resume={run} trainer.steps=3"))
    assert "File too large: make room" in line and "resume=" in line
    assert contents(run / "checkpoints") == files
    training(f"resume={run} trainer.steps=3")()
    assert [record["step"] for record in StepLog(run / "metrics.jsonl").read()] == [0, 1, 2, 3]
