"""The only place that imports torch, lightning, transformers, peft or mlx; itself imported late."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wordle_rl.policy.settings import BackendSettings
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.progress import announce


def load_backend(settings: BackendSettings) -> Any:
    """The module of a backend, imported when all that can be checked without it is right.

    Raises ConfigError when what it needs is not installed.
    """
    with need_mlx():
        if settings.name == "mlx":
            from wordle_rl.backends.blas import borrow_blas

            borrow_blas()
        with announce(f"importing the libraries of backend={settings.name}"):
            return importlib.import_module(settings.module)


@contextmanager
def need_mlx() -> Iterator[None]:
    """Turns a failed import of MLX in this block into a ConfigError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mlx", "mlx_lm"):
            raise
        raise ConfigError(
            "backend=mlx needs mlx-lm, which is there for Apple silicon and for Linux: install it "
            "with pip install -c constraints.txt -e '.[mlx]', or choose backend=lightning"
        ) from None
