"""The process of the next trial, which imports its libraries while the present trial trains.

It then waits for its arguments, so a trial starts without the seconds that imports take. It needs a
few hundred megabytes of memory, and trains nothing before it has its arguments.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from wordle_rl.runs.addresses import STORAGE
from wordle_rl.runs.launch import without_launch
from wordle_rl.runs.paths import environment
from wordle_rl.sweeps.dead_workers import watched


def child_environment(threads: int) -> dict[str, str]:
    """The environment of a run with this many CPU threads."""
    env = {**without_launch(environment()), "OMP_NUM_THREADS": str(threads)}
    env.pop(STORAGE, None)  # may hold a password, and a run needs no database
    return env


def give_order(process: subprocess.Popen[bytes], arguments: Sequence[str], log: Path) -> bool:
    """Let a waiting process run a command, whose output goes to a file. False if it has died."""
    assert process.stdin is not None
    order = {"arguments": list(arguments), "log": str(log)}
    try:
        os.write(process.stdin.fileno(), json.dumps(order).encode() + b"\n")
    except OSError:
        _end(process)
        return False
    return True


class Standby:
    """Keeps one process that waits. Threads may share it."""

    def __init__(self, command: Sequence[str]) -> None:
        """command: of a process that imports, and then waits for an order on standard input."""
        self._command = list(command)
        self._lock = threading.Lock()
        self._waiting: tuple[int, subprocess.Popen[bytes]] | None = None

    def take(self, threads: int) -> subprocess.Popen[bytes] | None:
        """The waiting process, if it lives and has this many threads; it is no longer kept."""
        with self._lock:
            kept, self._waiting = self._waiting, None
        if kept is None:
            return None
        if kept[0] == threads and kept[1].poll() is None:
            return kept[1]
        _end(kept[1])
        return None

    def prepare(self, threads: int) -> None:
        """Start a process that waits, unless there is one."""
        with self._lock:
            if self._waiting is not None:
                return
            process = subprocess.Popen(
                watched(self._command, orders=True),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=child_environment(threads), start_new_session=True,
            )  # fmt: skip
            self._waiting = threads, process

    def close(self) -> None:
        """End the waiting process."""
        with self._lock:
            kept, self._waiting = self._waiting, None
        if kept is not None:
            _end(kept[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the input of a process that waits. Its watchdog ends it then."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    process.wait()
