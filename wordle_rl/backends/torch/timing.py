"""Chooses precision and CPU threads for torch, by timing matrix products as wide as its layers.

Nothing is timed on accelerators: they use bf16 where the device supports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from wordle_rl.policy.computing import (
    Computing,
    Precision,
    Threads,
    choose_faster_precision,
    choose_timed_sizes,
)
from wordle_rl.policy.settings import LightningSettings

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
_LAYERS = 4  # of the timed loop that resembles decoding


def choose_computing(
    settings: LightningSettings, device: torch.device, shape: Callable[[], tuple[int, int]]
) -> Computing:
    """Take precision and threads from the settings, or time the choices where a setting is auto.

    shape: reads the widths of the model's layers (see read_layer_shape). It is called only for
    timing.
    """
    precision, reasons = settings.precision, []
    if precision == "auto":
        precision, reason = _choose_precision(device, shape)
        reasons.append(reason)
    threads = _prepare_threads(settings, device, shape)
    if change := threads.choose():
        reasons.append(change)
    return Computing(precision=precision, reasons=tuple(reasons), threads=threads)


def count_cpu_threads(processes: int = 1) -> int:
    """Threads for one of several processes: its share of OMP_NUM_THREADS, or of the cores.

    Where torchrun started the processes, OMP_NUM_THREADS is for each, but torchrun's own 1 is none
    of the user's choices.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    if asked.isdecimal() and int(asked) and not (launched and processes > 1 and asked == "1"):
        cores = int(asked) * (processes if launched else 1)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(cores // processes, 1)


def _choose_precision(
    device: torch.device, shape: Callable[[], tuple[int, int]]
) -> tuple[Precision, str]:
    if device.type == "cpu":
        torch.set_num_threads(1)  # other programs disturb one thread the least
        sizes = shape()
        return choose_faster_precision(
            {name: _build_products(dtype, sizes) for name, dtype in DTYPES.items()}
        )
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


def _prepare_threads(
    settings: LightningSettings, device: torch.device, shape: Callable[[], tuple[int, int]]
) -> Threads:
    if settings.threads != "auto":
        return Threads(most=settings.threads, use=torch.set_num_threads)
    most = count_cpu_threads(settings.processes_here)
    work = _build_decoding(shape()) if device.type == "cpu" and most > 1 else None
    return Threads(most=most, use=torch.set_num_threads, work=work)


def _draw_matrices(
    dtype: torch.dtype, shape: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random hidden states, and the two matrices of a feed-forward layer."""
    rows, width, inner = choose_timed_sizes(shape)
    generator = torch.Generator().manual_seed(0)  # leaves the global generator alone
    states, up, down = (
        torch.randn(size, generator=generator).to(dtype)
        for size in ((rows, width), (inner, width), (width, inner))
    )
    return states, up, down


def _build_products(dtype: torch.dtype, shape: tuple[int, int]) -> Callable[[], object]:
    """Work that multiplies hidden states by both matrices."""
    states, up, down = _draw_matrices(dtype, shape)

    @torch.inference_mode()
    def work() -> torch.Tensor:
        return nn.functional.linear(nn.functional.linear(states, up), down)

    return work


def _build_decoding(shape: tuple[int, int]) -> Callable[[], object]:
    """Work like decoding: many short operations, after each of which threads must synchronise."""
    states, up, down = _draw_matrices(torch.float32, shape)
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
