"""Lets MLX on Linux multiply matrices with torch's BLAS.

MLX's CPU build ships the reference BLAS, with about 5 GFLOP/s per core where torch's MKL has 80. It
looks routines up by name and takes them from the first library that exports the name globally.
Nothing changes on Apple silicon, or when torch has no such routines.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path


def borrow_blas() -> bool:
    """Export torch's routines to all libraries that are loaded from now on.

    Returns whether MLX will use them. It will not if it is already imported.
    """
    if platform.system() != "Linux" or "mlx.core" in sys.modules:
        return False
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.is_file() or not hasattr(ctypes.CDLL(str(library)), "sgemm_"):
        return False
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return True
