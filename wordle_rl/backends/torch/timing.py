"""What the torch backend times to choose precision and threads: products of the model's own shapes.

On accelerators nothing is timed: bf16 where the device computes in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from wordle_rl.policy.computing import Computing, Precision, Threads, faster_precision, timed_sizes
from wordle_rl.policy.settings import LightningSettings

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
_LAYERS = 4  # of the decode-like loop


def choose_computing(
    settings: LightningSettings, device: torch.device, shape: Callable[[], tuple[int, int]]
) -> Computing:
    """Precision and threads as the settings say, timed where they say auto.

    shape: reads the widths of the model's layers, where something is timed (see layer_shape).
    """
    precision, reasons = settings.precision, []
    if precision == "auto":
        precision, reason = _auto_precision(device, shape)
        reasons.append(reason)
    threads = _threads(settings, device, shape)
    if change := threads.choose():
        reasons.append(change)
    return Computing(precision=precision, reasons=tuple(reasons), threads=threads)


def cpu_threads(processes: int = 1) -> int:
    """Threads of one of several processes: its share of OMP_NUM_THREADS, or else of the cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if asked.isdecimal() and int(asked):
        cores = int(asked)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(cores // processes, 1)


def _auto_precision(
    device: torch.device, shape: Callable[[], tuple[int, int]]
) -> tuple[Precision, str]:
    if device.type == "cpu":
        torch.set_num_threads(1)  # least disturbed by other programs
        sizes = shape()
        return faster_precision({name: _products(dtype, sizes) for name, dtype in DTYPES.items()})
    if device.type == "cuda":
        able = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        able = _mps_multiplies_bf16(device)
    if able:
        return "bf16", f"bf16: {device.type} computes in it"
    return "fp32", f"fp32: this {device.type} device does not compute in bf16"


def _mps_multiplies_bf16(device: torch.device) -> bool:
    try:
        ones = torch.ones(8, 8, dtype=torch.bfloat16, device=device)
        return bool((ones @ ones == 8).all())
    except (RuntimeError, TypeError):  # before macOS 14
        return False


def _threads(
    settings: LightningSettings, device: torch.device, shape: Callable[[], tuple[int, int]]
) -> Threads:
    if settings.threads != "auto":
        return Threads(most=settings.threads, use=torch.set_num_threads)
    most = cpu_threads(settings.devices)
    work = _decoding(shape()) if device.type == "cpu" and most > 1 else None
    return Threads(most=most, use=torch.set_num_threads, work=work)


def _matrices(
    dtype: torch.dtype, shape: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of hidden states, and the matrices into a feed-forward layer and out of it."""
    rows, width, inner = timed_sizes(shape)
    made = torch.Generator().manual_seed(0)  # the global generator is left alone
    states, up, down = (
        torch.randn(size, generator=made).to(dtype)
        for size in ((rows, width), (inner, width), (width, inner))
    )
    return states, up, down


def _products(dtype: torch.dtype, shape: tuple[int, int]) -> Callable[[], object]:
    states, up, down = _matrices(dtype, shape)

    @torch.inference_mode()
    def work() -> torch.Tensor:
        return nn.functional.linear(nn.functional.linear(states, up), down)

    return work


def _decoding(shape: tuple[int, int]) -> Callable[[], object]:
    """Many short operations in a row, where threads wait for each other after each."""
    states, up, down = _matrices(torch.float32, shape)
    scale = torch.ones(states.shape[1])

    @torch.inference_mode()
    def work() -> torch.Tensor:
        hidden = states
        for _ in range(_LAYERS):
            normed = nn.functional.rms_norm(hidden, scale.shape, scale)
            hidden = hidden + nn.functional.linear(
                nn.functional.silu(nn.functional.linear(normed, up)), down
            )
        return hidden

    return work
