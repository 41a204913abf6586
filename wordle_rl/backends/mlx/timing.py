"""What the MLX backend times to choose its precision. On Apple's GPUs nothing is timed: bf16."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import mlx.core as mx

from wordle_rl.policy.computing import (
    Computing,
    Precision,
    faster_precision,
    layer_shape,
    timed_sizes,
)

_DTYPES: dict[Precision, mx.Dtype] = {"fp32": mx.float32, "bf16": mx.bfloat16}


def choose_computing(
    precision: Precision | Literal["auto"], config: Mapping[str, Any]
) -> Computing:
    """The precision that is asked for, or with auto the faster one.

    config: the model's config.json.
    """
    if precision != "auto":
        return Computing(precision=precision)
    if mx.default_device() != mx.Device(mx.cpu):
        return Computing(precision="bf16", reasons=("bf16: the GPU computes in it",))
    shape = layer_shape(config.get("text_config", config))
    chosen, reason = faster_precision({p: _products(d, shape) for p, d in _DTYPES.items()})
    return Computing(precision=chosen, reasons=(reason,))


def _products(dtype: mx.Dtype, shape: tuple[int, int]) -> Callable[[], None]:
    rows, width, inner = timed_sizes(shape)
    states, up, down = (
        mx.random.normal(size, key=mx.random.key(0)).astype(dtype)
        for size in ((rows, width), (width, inner), (inner, width))
    )
    mx.eval(states, up, down)
    return lambda: mx.eval(states @ up @ down)
