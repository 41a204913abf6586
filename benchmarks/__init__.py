"""Timed comparisons. Each file without a leading underscore is a command.

As on an ordinary x86 processor, with AVX2 alone:

    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python ...
"""

import os

# Before torch is imported, as commands do: see begin() in wordle_rl/runs/interrupts.py.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
