"""Draws on MLX, against a slow draw by sorting."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from wordle_rl.backends.mlx.engine import draw_tokens
from wordle_rl.policy.sampling import Sampling


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7),
        Sampling(temperature=1.3, top_k=3),
        Sampling(temperature=1.0, top_p=0.6),
        Sampling(temperature=0.5, top_k=4, top_p=0.8),
        Sampling(temperature=0.0),
    ],
)
def test_a_draw_inverts_the_distribution_that_the_settings_leave(sampling):
    random = np.random.default_rng(3)
    logits = random.normal(size=(5, 8)).astype(np.float32)
    uniforms = np.array([0.0, 0.3, 0.6, 0.9, 1.0 - 2.0**-24], np.float32)
    ids, logprobs = draw_tokens(mx.array(logits), sampling, uniforms)
    for row in range(5):
        expected, table = slow_draw(logits[row].astype(np.float64), sampling, float(uniforms[row]))
        assert ids[row].item() == expected
        assert logprobs[row].item() == pytest.approx(np.log(table[expected]), abs=1e-5)


def slow_draw(logits: np.ndarray, sampling: Sampling, uniform: float) -> tuple[int, np.ndarray]:
    """Token and probabilities, by sorting and adding up one token after the other."""
    table = np.exp(logits / (sampling.temperature or 1.0))
    if sampling.temperature == 0.0:
        return int(logits.argmax()), table / table.sum()
    order = np.argsort(-table)
    if sampling.top_k:
        order = order[: sampling.top_k]
    kept = np.zeros(len(table), bool)
    kept[order] = True
    table = np.where(kept, table, 0.0) / table[kept].sum()
    if sampling.top_p < 1.0:
        before = 0.0
        for token in order:
            kept[token] = before < sampling.top_p
            before += table[token]
        table = np.where(kept, table, 0.0) / table[kept].sum()
    total = 0.0
    for token, probability in enumerate(table):
        total += probability
        if total > uniform:
            return token, table
    return int(np.flatnonzero(kept)[-1]), table
