"""Ctrl-C and SIGTERM as requests to stop, obeyed where a run can stop without loss.

Python runs no signal handler while the main thread is inside a library, which may wait for another
process for ever. A second thread therefore counts the signals. This module imports nothing slow,
because commands begin with it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_END = 0  # number of no signal
_ADVICE = b"\nStopping at the next safe point; press Ctrl-C again to quit now.\n"


def begin() -> None:
    """Prepare the process for a command: Ctrl-C ends it with 130, SIGTERM with 143."""
    if importlib.util.find_spec("fcntl") is None:
        raise SystemExit("error: wordle-rl needs Linux or macOS; on Windows use WSL2")

    def stop(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # as for a job in the background
            signal.signal(signum, stop)
    # GNU OpenMP's long spins slow every operation up to tenfold when other processes are running.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # A notebook's own is often not installed here. No command opens a window.
    os.environ["MPLBACKEND"] = "agg"


def ignore_signals() -> None:
    """Ignore Ctrl-C and SIGTERM, for processes whose end another process decides."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


class Interrupted(SystemExit):
    """A signal asked the run to stop. The exit code is a shell's for a process killed by it."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self._name = signal.Signals(signum).name

    def __str__(self) -> str:
        return f"stopped by {self._name}"


class Interrupts:
    """While entered, keeps the first signal for check(); a second one ends the process at once.

    Before hold() nothing can be lost, and the first signal raises Interrupted at once.
    """

    def __init__(self) -> None:
        self._signum: int | None = None
        self._held = False
        self._before: dict[int, Any] = {}
        self._last_acts: list[Callable[[], None]] = []

    def __enter__(self) -> Interrupts:
        self._before = {signum: signal.getsignal(signum) for signum in SIGNALS}
        self._wakeup_before = signal.set_wakeup_fd(-1)
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)  # as set_wakeup_fd demands
        self._thread = threading.Thread(target=self._count, args=(reader,), daemon=True)
        self._thread.start()
        for signum in SIGNALS:
            signal.signal(signum, self._take)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._writer, bytes([_END]))
        self._thread.join()
        os.close(self._writer)

    def hold(self) -> None:
        """From now on a signal waits for check()."""
        self._held = True

    def check(self) -> None:
        """Raise Interrupted when a signal has come."""
        if self._signum is not None:
            raise Interrupted(self._signum)

    def on_second(self, act: Callable[[], None]) -> None:
        """Call this, in another thread, before a second signal ends the process; last one first."""
        self._last_acts.append(act)

    def _take(self, signum: int, frame: FrameType | None) -> None:
        """The first signal, in the main thread."""
        if self._signum is None:
            self._signum = signum
            if not self._held:
                raise Interrupted(signum)

    def _count(self, reader: int) -> None:
        """Read the signals, each a byte, in a thread that no call of the main thread blocks."""
        count = 0
        while (signum := os.read(reader, 1)[0]) != _END:
            count += signum in SIGNALS
            if count > 1:
                try:
                    for act in reversed(self._last_acts):
                        act()
                finally:
                    os._exit(128 + signum)  # checkpoints survive this at any moment
            elif count and self._held:
                with suppress(OSError):  # print() could wait for the main thread, which may print
                    os.write(2, _ADVICE)
        os.close(reader)
