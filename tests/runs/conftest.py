"""A place for checkpoints."""

from pathlib import Path

import pytest

from wordle_rl.runs.checkpoints import CheckpointStore


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")
