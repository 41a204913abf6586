"""How much memory a run takes, and what becomes of one that takes too much.

Resident memory is that of the process (Linux: /proc; elsewhere: ps), device memory what the policy
says. A run over its limit saves and goes on in a fresh process: that of the command itself, whose
image is replaced, so its number, terminal, signals and exit code stay the same.
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
_FEWEST_STEPS = (
    3  # steps that a fresh process must come through, or another one would not help either
)


class MemoryFull(RuntimeError):
    """The run is above its limit. helps: whether a fresh process may get further."""

    def __init__(self, message: str, *, helps: bool) -> None:
        super().__init__(message)
        self.helps = helps


@dataclass(kw_only=True)
class MemoryGuard:
    """The limits in GB (10**9 bytes), None for none, and the memory that was seen last."""

    resident: float | None
    device: float | None
    seen: dict[str, float] = field(default_factory=dict)

    def look(self, policy: Policy) -> dict[str, float]:
        """Metrics of the memory in use, in GB; with several processes that of the largest."""
        own = (resident_bytes() / GB, policy.device_bytes / GB)
        resident, device = zip(*policy.processes.gather(own), strict=True)
        self.seen = {RESIDENT: max(resident), DEVICE: max(device)}
        return self.seen

    def check(self, steps: int) -> None:
        """Raise MemoryFull when what was seen last is above a limit.

        steps: how many this process has done.
        """
        for key, name, limit in (
            (RESIDENT, "trainer.memory_limit_gb", self.resident),
            (DEVICE, "trainer.device_memory_limit_gb", self.device),
        ):
            if limit is not None and self.seen.get(key, 0.0) > limit:
                told = f"{self.seen[key]:.2f} GB are in use, {name}={limit:g} allows less"
                raise MemoryFull(told, helps=steps >= _FEWEST_STEPS)


def resident_bytes() -> int:
    """Resident memory of this process; 0 where it cannot be told."""
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
    given = len(sys.argv) - 1  # arguments behind the script's name or -m module
    command = sys.orig_argv[1 : len(sys.orig_argv) - given]
    os.execv(sys.executable, [sys.executable, *command, *overrides])
