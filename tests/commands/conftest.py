"""A finished run that commands are tried on."""

import shutil
from pathlib import Path

import pytest

from tests.helpers.commands import trained


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A run folder with checkpoints of steps 0, 1 and 2, trained on split words."""
    return trained(tmp_path_factory.mktemp("runs") / "split")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may spoil."""
    return shutil.copytree(finished, tmp_path / "run")
