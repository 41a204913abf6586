"""Chooses the precision for MLX, by timing on a CPU. On Apple's GPUs it is bf16."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import mlx.core as mx

from wordle_rl.policy.computing import (
    Computing,
    Precision,
    choose_faster_precision,
    choose_timed_sizes,
    read_layer_shape,
)

_DTYPES: dict[Precision, mx.Dtype] = {"fp32": mx.float32, "bf16": mx.bfloat16}


def choose_computing(
    precision: Precision | Literal["auto"], config: Mapping[str, Any]
) -> Computing:
    """The given precision, or the faster one for auto.

    config: the model's config.json.
    """
    if precision != "auto":
        return Computing(precision=precision)
    if mx.default_device() != mx.Device(mx.cpu):
        return Computing(precision="bf16", reasons=("bf16: the GPU computes in it",))
    shape = read_layer_shape(config.get("text_config", config))
    chosen, reason = choose_faster_precision(
        {name: _build_products(dtype, shape) for name, dtype in _DTYPES.items()}
    )
    return Computing(precision=chosen, reasons=(reason,))


def _build_products(dtype: mx.Dtype, shape: tuple[int, int]) -> Callable[[], None]:
    """Work that multiplies hidden states by the two matrices of a feed-forward layer."""
    rows, width, inner = choose_timed_sizes(shape)
    states, up, down = (
        mx.random.normal(size, key=mx.random.key(0)).astype(dtype)
        for size in ((rows, width), (width, inner), (inner, width))
    )
    mx.eval(states, up, down)
    return lambda: mx.eval(states @ up @ down)
