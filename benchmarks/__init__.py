"""Timed comparisons. Each file without a leading underscore is a command."""

import os
import sys

# As commands do, see begin() in wordle_rl/runs/interrupts.py.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
# Makes an x86 processor compute with AVX2 alone, as the Makefile's variable of this name does.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


def restart_with_avx2() -> None:
    """With --avx2 on the command line, start the command again with AVX2's settings."""
    if "--avx2" in sys.argv and not AVX2.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **AVX2})


# Libraries read these settings when they are loaded, so it runs before torch is imported.
restart_with_avx2()
