"""Lets MLX multiply matrices on Linux with the BLAS that torch brings.

MLX's CPU build comes with the reference BLAS, some 5 GFLOP/s a core where torch's MKL does 80. It
asks for its routines by name, and gets them from the first library that offers the name to all.
Nothing changes on Apple silicon, or where torch offers none.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path


def borrow_blas() -> bool:
    """Offer torch's routines to all libraries that are loaded from now on.

    Returns whether MLX will use them: not once it is imported.
    """
    if platform.system() != "Linux" or "mlx.core" in sys.modules:
        return False
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.is_file() or not hasattr(ctypes.CDLL(str(library)), "sgemm_"):
        return False
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return True
