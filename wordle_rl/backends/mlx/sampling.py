"""Draws tokens from logits on MLX."""

from __future__ import annotations

import mlx.core as mx

from wordle_rl.policy.sampling import Sampling


def sample_tokens(
    logits: mx.array, sampling: Sampling, numbers: mx.array
) -> tuple[mx.array, mx.array]:
    """Invert the distribution of each row at its uniform number.

    logits: float32 [rows, V]. numbers: float32 [rows]. Returns ids and their natural
    log-probabilities after temperature, top-k and top-p (greedy: at temperature 1).
    """
    greedy = sampling.temperature == 0.0
    logits = logits if greedy else _mask_unlikely(logits / sampling.temperature, sampling)
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    shares = mx.exp(logits)
    total = mx.sum(shares, axis=-1, keepdims=True)
    if greedy:
        ids = mx.argmax(logits, axis=-1)
    else:
        cumulative = mx.cumsum(shares, axis=-1)
        # Rounding must not reach the total, because there is no token beyond it.
        target = mx.minimum(numbers, 1.0 - 2.0**-22)[:, None] * cumulative[:, -1:]
        ids = mx.sum(cumulative <= target, axis=-1)
    logprobs = mx.take_along_axis(logits, ids[:, None], axis=1) - mx.log(total)
    return ids, logprobs[:, 0]


def _mask_unlikely(logits: mx.array, sampling: Sampling) -> mx.array:
    """Logits in which every token that top-k or top-p excludes is minus infinity."""
    if sampling.top_k:
        kth = mx.sort(logits, axis=-1)[:, -min(sampling.top_k, logits.shape[-1])]
        logits = mx.where(logits < kth[:, None], -mx.inf, logits)
    if sampling.top_p < 1.0:
        order = mx.argsort(-logits, axis=-1)
        ordered = mx.softmax(mx.take_along_axis(logits, order, axis=-1), axis=-1)
        outside = mx.cumsum(ordered, axis=-1) - ordered >= sampling.top_p
        place = mx.argsort(order, axis=-1)
        logits = mx.where(mx.take_along_axis(outside, place, axis=-1), -mx.inf, logits)
    return logits
