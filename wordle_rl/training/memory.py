"""Measures a run's memory, and restarts a run that uses too much.

Resident memory is the process's own, read from /proc on Linux and from ps elsewhere. Device memory
is what the policy reports. A run above its limit saves and continues in a fresh process. That
process replaces the image of the command itself, so the process id, terminal, signals and exit code
stay the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from wordle_rl.policy.policy import Policy

GB = 1e9  # bytes
RESIDENT, DEVICE = "memory/resident_gb", "memory/device_gb"
_FEWEST_STEPS = 3  # steps that a process must complete for another fresh one to help


class MemoryFull(RuntimeError):
    """The run is above its memory limit. helps: whether a fresh process may get further."""

    def __init__(self, message: str, *, helps: bool) -> None:
        super().__init__(message)
        self.helps = helps


@dataclass(kw_only=True)
class MemoryGuard:
    """The limits and the last memory seen, in GB of 10**9 bytes. None: no limit."""

    resident: float | None
    device: float | None
    seen: dict[str, float] = field(default_factory=dict)

    def look(self, policy: Policy) -> dict[str, float]:
        """Measure the memory in use. Returns metrics in GB: the largest of all processes."""
        own = (resident_bytes() / GB, policy.device_bytes / GB)
        resident, device = zip(*policy.processes.gather(own), strict=True)
        self.seen = {RESIDENT: max(resident), DEVICE: max(device)}
        return self.seen

    def check(self, steps: int) -> None:
        """Raise MemoryFull if the last memory seen is above a limit.

        steps: how many this process has done.
        """
        for key, name, limit in (
            (RESIDENT, "trainer.memory_limit_gb", self.resident),
            (DEVICE, "trainer.device_memory_limit_gb", self.device),
        ):
            if limit is not None and self.seen.get(key, 0.0) > limit:
                message = f"{self.seen[key]:.2f} GB are in use, more than {name}={limit:g} allows"
                raise MemoryFull(message, helps=steps >= _FEWEST_STEPS)


def resident_bytes() -> int:
    """Resident memory of this process in bytes, 0 where it is unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return int(done.stdout) * 1024
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def start_afresh(overrides: Sequence[str]) -> NoReturn:
    """Replace this process by the same command with other overrides."""
    sys.stdout.flush()
    sys.stderr.flush()
    given = len(sys.argv) - 1  # arguments after the script's name or -m module
    command = sys.orig_argv[1 : len(sys.orig_argv) - given]
    os.execv(sys.executable, [sys.executable, *command, *overrides])
