"""The MLX engine keeps the contract of tests/test_engine.py, beside torch's plain passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.backends.torch import test_engine as test_engine
from tests.backends.torch.test_engine import STOPS, VOCAB, assert_same, numbers
from tests.helpers.mlx_tiny import loaded_from
from tests.helpers.tiny import gemma, plain_copy, qwen
from wordle_rl.backends.mlx import cache as mlx_cache
from wordle_rl.backends.mlx.cache import round_up
from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.backends.mlx.engine import CompiledModel, MlxEngine
from wordle_rl.backends.mlx.sampling import sample_tokens
from wordle_rl.policy.sampling import Sampling

CONTRACT = (  # rows 2 and 9
    "test_a_prompt_fits_when_it_leaves_room_for_a_token",
    "test_a_prompt_may_be_fed_whole_or_token_by_token",
    "test_a_row_can_be_forked_no_times_at_all",
    "test_a_stop_token_drawn_at_the_token_limit_counts_as_a_stop_token",
    "test_an_answer_never_outgrows_the_context",
    "test_an_answer_without_a_stop_token_ends_at_the_token_limit",
    "test_answers_do_not_depend_on_batch_size_or_order",
    "test_answers_do_not_depend_on_neighbours_that_leave_or_join",
    "test_batched_games_get_the_tokens_and_logprobs_of_plain_forward_passes",
    "test_extending_by_nothing_is_refused",
    "test_forked_rows_play_like_rows_that_were_fed_the_same",
    "test_logprobs_seen_while_decoding_are_those_of_one_pass_over_the_conversation",
    "test_text_that_does_not_fit_leaves_its_row_as_it_was",
)
globals().update({name: getattr(test_engine, name) for name in CONTRACT})


@dataclass(frozen=True)
class Models:
    plain: Any  # transformers' own code
    lm: MlxLM  # what the engine runs on

    def engine(self, *, stops: frozenset[int] = STOPS, max_context: int = 200) -> MlxEngine:
        steps = CompiledModel(self.lm, max_context=max_context, compiled=False)
        return MlxEngine(steps, {}, stop_ids=stops)


@pytest.fixture(scope="module", params=["qwen", "gemma", "gemma with short rings"])
def models(request: pytest.FixtureRequest) -> Any:
    model = (qwen(VOCAB) if request.param == "qwen" else gemma(VOCAB, window=4)).eval()
    loaded = loaded_from(model)
    loaded.model.freeze()
    with pytest.MonkeyPatch.context() as patch:
        if request.param.endswith("rings"):
            # Sliding layers then hold 12 tokens, and the games below come round several times.
            for module in ("cache", "engine"):
                patch.setattr(f"wordle_rl.backends.mlx.{module}.CHUNK", 8)
            patch.setattr(mlx_cache, "_GROWTH", 4)
        yield Models(plain=plain_copy(model), lm=MlxLM(loaded.model))


def test_a_ring_holds_the_window_and_not_the_whole_game(monkeypatch):
    for module in ("cache", "engine"):
        monkeypatch.setattr(f"wordle_rl.backends.mlx.{module}.CHUNK", 8)
    monkeypatch.setattr(mlx_cache, "_GROWTH", 4)
    loaded = loaded_from(gemma(VOCAB, window=4))
    loaded.model.freeze()
    engine = MlxEngine(
        CompiledModel(MlxLM(loaded.model), max_context=100, compiled=False), {}, stop_ids=STOPS
    )
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
