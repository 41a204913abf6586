"""Ctrl-C and SIGTERM as requests to stop, looked at where a run can be left without loss.

Python runs signal handlers in the main thread only, so a run must be started there.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(SystemExit):
    """A signal asked the run to stop; the exit code is a shell's for a process that died of it."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self._name = signal.Signals(signum).name

    def __str__(self) -> str:
        return f"stopped by {self._name}"


class Interrupts:
    """While entered, keeps the first signal for check(); a second one ends the process at once.

    Before hold() there is nothing to lose, and the first signal raises Interrupted where it comes.
    """

    def __init__(self) -> None:
        self._signum: int | None = None
        self._held = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {signum: signal.getsignal(signum) for signum in SIGNALS}
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def install(self) -> None:
        """Take the signals, also from a library that took them meanwhile."""
        for signum in SIGNALS:
            signal.signal(signum, self._take)

    def hold(self) -> None:
        """From now on a signal waits for check()."""
        self._held = True

    def check(self) -> None:
        """Raise Interrupted when a signal has come."""
        if self._signum is not None:
            raise Interrupted(self._signum)

    def _take(self, signum: int, frame: FrameType | None) -> None:
        if self._signum is not None:
            os._exit(128 + signum)  # checkpoints survive that at any moment
        self._signum = signum
        if not self._held:
            raise Interrupted(signum)
        # print() cannot be called here: the signal may have come in the middle of one
        os.write(2, b"\nstopping; once more stops at once\n")
