"""Chooses the precision for MLX, by timing on a CPU. On Apple's GPUs it is bf16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import mlx.core as mx

from wordle_rl.backends.memory import find_sizes
from wordle_rl.policy.computing import (
    Computing,
    Precision,
    choose_precision,
    time_in_turns,
    timed_sizes,
)
from wordle_rl.policy.settings import ModelSettings

_DTYPES: dict[Precision, mx.Dtype] = {"fp32": mx.float32, "bf16": mx.bfloat16}


def choose_computing(precision: Precision | Literal["auto"], model: ModelSettings) -> Computing:
    """The given precision, or the faster one for auto."""
    if precision != "auto":
        return Computing(precision=precision)
    if mx.default_device() != mx.Device(mx.cpu):
        return Computing(precision="bf16", reasons=("bf16: the GPU computes in it",))
    works = {name: _build_work(dtype, model) for name, dtype in _DTYPES.items()}
    chosen, reason = choose_precision(time_in_turns(works))
    return Computing(precision=chosen, reasons=(reason,))


def _build_work(dtype: mx.Dtype, model: ModelSettings) -> Callable[[], None]:
    """Work that multiplies hidden states by the two matrices of a feed-forward layer."""
    sizes, _ = find_sizes(model)
    rows, width, inner = timed_sizes(sizes.hidden, sizes.inner)
    states, up, down = (
        mx.random.normal(size, key=mx.random.key(0)).astype(dtype)
        for size in ((rows, width), (width, inner), (inner, width))
    )
    mx.eval(states, up, down)
    return lambda: mx.eval(states @ up @ down)
