"""What is MLX's own in its engine: rings, draws, shapes and compiled steps."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tests.helpers.engines import ENGINE_MODELS, STOPS, assert_same, numbers, short_rings
from wordle_rl.backends.mlx.cache import round_up
from wordle_rl.backends.mlx.engine import CompiledModel, MlxEngine
from wordle_rl.backends.mlx.sampling import sample_tokens
from wordle_rl.policy.sampling import Sampling


def test_a_ring_holds_the_window_and_not_the_whole_game():
    with short_rings():
        engine = ENGINE_MODELS["mlx gemma with short rings"]().engine(max_context=100)
        rows = engine.open(2)
        engine.extend(rows, [list(range(1, 40)), [3]])
        held = [ring.keys.shape[2] for ring in engine._rings if ring.keys is not None]
    assert held == [12, 40, 12]


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
    ids, logprobs = sample_tokens(mx.array(logits), sampling, mx.array(uniforms))
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


def test_shapes_are_rounded_up_by_at_most_a_third_to_few_sizes():
    sizes = {round_up(n) for n in range(1, 1025)}
    assert len(sizes) < 40
    assert all(
        n <= round_up(n) <= max(2 * n if n < 8 else 0, 4 * n / 3 + 1) for n in range(1, 1025)
    )


@pytest.mark.slow  # on a new machine MLX calls a compiler for half a minute
@pytest.mark.parametrize("models", [n for n in ENGINE_MODELS if "mlx" in n], indirect=True)
def test_a_compiled_engine_draws_the_same(models):
    answers = []
    for compiled in (False, True):
        (mx.enable_compile if compiled else mx.disable_compile)()
        try:
            steps = CompiledModel(models.lm, max_context=200, compiled=compiled)
            engine = MlxEngine(steps, {}, stop_ids=STOPS)
            rows = engine.open(3)
            engine.extend(rows, [[1, 2, 3], [4], [5, 6]])
            drawn = np.stack([numbers(i, 0) for i in range(3)])
            answers.append([engine.decode(rows, Sampling(max_tokens=7), drawn)])
        finally:
            mx.disable_compile()
    assert_same(*answers)
