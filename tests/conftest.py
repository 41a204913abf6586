"""Makes every test offline and repeatable: no hub, one thread, the same seeds in any order.

The environment is set while this file loads, before any test module imports a library.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from wordle_rl import cli

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Sums in an order that does not depend on the number of cores; children of a test inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Before a test module imports MLX, let it multiply as it does in a run."""
    if "mlx" in module_path.read_text():
        from wordle_rl.backends.mlx_blas import borrow_blas

        borrow_blas()


@pytest.fixture(autouse=True)
def same_start() -> None:
    """Global generators and the thread count as at the start, whatever earlier tests did."""
    random.seed(0)
    np.random.seed(0)
    # Tests of the upper layers run without torch, so it is not imported for this.
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def cache_that_can_be_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where the home folder is read-only, computed tables are kept for the session all the same."""
    if "WORDLE_RL_CACHE" in os.environ:
        return
    folder = Path.home() / ".cache" / "wordle-rl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refused = not os.access(folder, os.W_OK)
    except OSError:
        refused = True
    if refused:
        os.environ["WORDLE_RL_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def refused(capsys, monkeypatch) -> Callable[[Callable[[], object]], str]:
    """Runs a command that must fail. Returns its one line."""

    def run(command: Callable[[], object]) -> str:
        monkeypatch.setattr(sys, "argv", ["train.py"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.run(command)
        [line] = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and line.startswith("error: ")
        return line

    return run
