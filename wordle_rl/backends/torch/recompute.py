"""Gradient checkpointing: the backward pass computes activations again instead of keeping them.

transformers has its own switch, but it works in training mode only, which would turn dropout on.
Source: "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from wordle_rl.runs.instantiate import ConfigError


def recompute(function: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Call a function. Its inputs are kept for the backward pass, which calls it again.

    Without gradients this is a plain call. The function must not draw random numbers.
    """
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False, **named)


def find_layers(trunk: nn.Module) -> list[nn.Module]:
    """The layers of a transformers decoder. Raises ConfigError when it names none."""
    layers = [part for part in trunk.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"backend.gradient_checkpointing must be false for this model, not true: transformers "
            f"names no layers of {type(trunk).__name__} that can be computed again"
        )
    return list(layers)


@contextmanager
def recompute_layers(layers: Sequence[nn.Module]) -> Iterator[None]:
    """In this block, keep only the inputs of these layers for the backward pass."""
    for layer in layers:
        layer.forward = partial(recompute, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the method of the class is back
