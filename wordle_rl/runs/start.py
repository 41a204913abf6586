"""Lets a signal end a command without a traceback; imported before anything slow."""

from __future__ import annotations

import os
import signal
from types import FrameType


def begin() -> None:
    """Prepare the process for a command; call it first.

    Until other handlers are installed, Ctrl-C ends the process with 130 and SIGTERM with 143.
    """
    for signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signum) != signal.SIG_IGN:  # as for a job in the background
            signal.signal(signum, _stop)
    # GNU OpenMP's long spins slow every operation up to tenfold when other processes are running.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def _stop(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
