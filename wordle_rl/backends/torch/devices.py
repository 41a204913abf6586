"""The device that a process computes on, and the memory that it has there."""

from __future__ import annotations

import torch

from wordle_rl.backends.memory import measure_memory
from wordle_rl.policy.memory import Place
from wordle_rl.policy.settings import LightningSettings


def measure_device(device: str, processes: int) -> tuple[Place, float]:
    """The kind of a device, and the bytes of memory that this process can have of it."""
    if device.startswith("cuda"):
        return "cuda", torch.cuda.mem_get_info(device)[0]
    return ("mps" if device == "mps" else "cpu"), measure_memory() / processes


def choose_device(backend: LightningSettings, place: int) -> str:
    """The device of a process. place: its number among the processes of this machine.

    Raises ValueError for a device that this machine lacks.
    """
    accelerator = backend.accelerator
    have = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        accelerator = next((name for name, there in have.items() if there), "cpu")
    if not have.get(accelerator, True):
        there = ", ".join(["auto", "cpu", *(name for name, ok in have.items() if ok)])
        raise ValueError(f"backend.accelerator={accelerator} is not on this machine; use {there}")
    wanted = backend.processes_here
    most = {"cuda": torch.cuda.device_count(), "mps": 1}.get(accelerator, wanted)
    if wanted > most:
        number = "backend.devices" if backend.devices > 1 else "torchrun's --nproc-per-node"
        raise ValueError(
            f"{number} must be 1..{most} with backend.accelerator={accelerator} on this machine, "
            f"not {wanted}"
        )
    return f"cuda:{place}" if accelerator == "cuda" else accelerator
