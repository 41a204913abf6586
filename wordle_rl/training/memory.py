"""Measures a run's memory, and restarts a run that uses too much.

Device memory is what the policy reports. A run above its limit saves and continues in a fresh
process. That process replaces the image of the command itself, so the process id, terminal, signals
and exit code stay the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import psutil

from wordle_rl.policy.policy import Policy
from wordle_rl.training.settings import TrainerSettings

GB = 1e9  # bytes
RESIDENT, DEVICE = "memory/resident_gb", "memory/device_gb"
_FEWEST_STEPS = 3  # steps that a process must complete for another fresh one to help


class MemoryFull(RuntimeError):
    """The run is above its memory limit. helps: whether a fresh process may get further."""

    def __init__(self, message: str, *, helps: bool) -> None:
        super().__init__(message)
        self.helps = helps


def resident_bytes() -> int:
    """Resident memory of this process in bytes."""
    return psutil.Process().memory_info().rss


def measure_memory(policy: Policy) -> dict[str, float]:
    """The memory in use, as metrics in GB: the largest of all processes."""
    own = (resident_bytes() / GB, policy.device_bytes / GB)
    resident, device = zip(*policy.processes.gather(own), strict=True)
    return {RESIDENT: max(resident), DEVICE: max(device)}


def check_memory(seen: Mapping[str, float], trainer: TrainerSettings, steps: int) -> None:
    """Raise MemoryFull if the memory seen last is above a limit.

    seen: from measure_memory(), empty before the first step. steps: how many this process has done.
    """
    for key, name in (RESIDENT, "memory_limit_gb"), (DEVICE, "device_memory_limit_gb"):
        limit = getattr(trainer, name)
        if limit is not None and seen.get(key, 0.0) > limit:
            message = f"{seen[key]:.2f} GB are in use, more than trainer.{name}={limit:g} allows"
            raise MemoryFull(message, helps=steps >= _FEWEST_STEPS)


def start_afresh(overrides: Sequence[str]) -> NoReturn:
    """Replace this process by the same command with other overrides."""
    sys.stdout.flush()
    sys.stderr.flush()
    given = len(sys.argv) - 1  # arguments after the script's name or -m module
    command = sys.orig_argv[1 : len(sys.orig_argv) - given]
    os.execv(sys.executable, [sys.executable, *command, *overrides])
