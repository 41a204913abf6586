"""Runs models: the only folder that imports torch, lightning, transformers, peft or MLX.

torch/ is backend=lightning, mlx/ is backend=mlx. Both have the same files: backend.py trains a run,
policy.py scores and updates a model, engine.py plays, load.py loads, loss.py computes the loss of a
micro-batch, optimizers.py steps, timing.py chooses the precision. The files beside the two folders
serve both: tokenizer and chat template, loggers, the embedded model, LoRA adapters, and the checks
and messages for models that cannot be loaded.

Commands import a backend late, through load_backend().
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wordle_rl.policy.settings import BackendSettings
from wordle_rl.runs.errors import install_command
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.progress import announce


def load_backend(settings: BackendSettings) -> Any:
    """Import the module of a backend, after everything that can be checked without it.

    Raises ConfigError when a library that it needs is not installed.
    """
    with need_mlx():
        if settings.name == "mlx":
            from wordle_rl.backends.blas import borrow_blas

            borrow_blas()
        with announce(f"importing the libraries of backend={settings.name}"):
            return importlib.import_module(settings.module)


@contextmanager
def need_mlx() -> Iterator[None]:
    """Turn a failed import of MLX in this block into a ConfigError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mlx", "mlx_lm"):
            raise
        raise ConfigError(
            "backend=mlx needs mlx-lm, which runs on Apple silicon and on Linux: install it "
            f"with {install_command('mlx')}, or choose backend=lightning"
        ) from None
