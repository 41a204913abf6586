"""Runs models: the only folder that imports torch, lightning, transformers, peft or MLX.

torch/ is backend=lightning, mlx/ is backend=mlx. Both have the same files: backend.py trains a run,
machine.py computes log-probabilities and gradients, optimizers.py steps, engine.py plays and draws
tokens, load.py loads. The files beside the two folders serve both.
"""

import ctypes
import importlib
import platform
import sys
from pathlib import Path
from typing import Any

from wordle_rl.policy.settings import BackendSettings
from wordle_rl.runs.progress import announce


def load_backend(settings: BackendSettings) -> Any:
    """Import the module of a backend, after everything that can be checked without it."""
    if settings.name == "mlx":
        borrow_blas()
    with announce(f"loading the libraries of backend={settings.name}"):
        return importlib.import_module(settings.module)


def borrow_blas() -> bool:
    """Let MLX on Linux multiply matrices with torch's BLAS, unless it is imported already.

    MLX's CPU build ships the reference BLAS, with about 5 GFLOP/s per core where torch's MKL has
    80. It takes routines from the first library that exports their names globally. Returns whether
    MLX will use torch's.
    """
    if platform.system() != "Linux" or "mlx.core" in sys.modules:
        return False
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.is_file() or not hasattr(ctypes.CDLL(str(library)), "sgemm_"):
        return False
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return True
