"""Passes of one token that are captured once and replayed, as a GPU replays CUDA graphs.

tests/backends/test_engine.py compares the games with plain forward passes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.families import CONFIGS, VOCAB, save_family
from tests.helpers.recording import record
from tests.helpers.tiny import many_stops, qwen
from wordle_rl.backends.torch.backend import build_policy
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.backends.torch.load import load_model
from wordle_rl.backends.torch.static import StaticRows
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.prefix_cache import CachedEngine
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.settings import LightningSettings, LoraSettings, ModelSettings
from wordle_rl.runs.instantiate import ConfigError


def settings_of(path: str, **fields: Any) -> ModelSettings:
    return ModelSettings(
        name="small", path=path, learning_rate=1e-2, max_tokens=8, max_context=256, **fields
    )


def answers_of(rows: Any) -> list[tuple[list[int], list[float]]]:
    """Tokens and their log-probabilities in three turns of nine conversations."""
    stops = frozenset(many_stops(VOCAB, every=9))
    engine = CachedEngine(rows, stop_ids=stops, max_context=100)
    random, sampling = np.random.default_rng(1), Sampling(max_tokens=6)
    texts: list[list[int]] = [[] for _ in range(9)]
    result: list[tuple[list[int], list[float]]] = []
    for turn in range(3):
        for text in texts:
            text += random.integers(6, VOCAB, random.integers(2, 12)).tolist()
        uniforms = Draws(seed=3, step=0).uniforms(np.arange(9), turn, 6)
        for text, answer in zip(texts, engine.complete(texts, sampling, uniforms), strict=True):
            text += answer.ids
            result.append((answer.ids, answer.logprobs))
    return result


@pytest.mark.parametrize("family", CONFIGS)
def test_each_family_plays_the_same_games_by_replay(family: str, tmp_path: Path) -> None:
    lora = LoraSettings(rank=3, alpha=6.0)
    folder = save_family(tmp_path, family)
    lm = CausalLM(
        load_model(settings_of(str(folder), lora=lora), precision="fp32", device="cpu")[0]
    )
    plain, replayed = answers_of(TorchRows(lm)), answers_of(StaticRows(lm, record, step=16))
    assert [ids for ids, _ in replayed] == [ids for ids, _ in plain]
    for (_, actual), (_, expected) in zip(replayed, plain, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_passes_are_captured_for_powers_of_two_and_again_only_when_the_cache_grows() -> None:
    captures, passes = [], []

    def capture(function: Any) -> Any:
        captures.append(function)
        replay = record(function)
        return lambda: passes.append(function) or replay()

    rows = StaticRows(CausalLM(qwen(VOCAB).eval()), capture, step=64)
    answers_of(rows)
    first = len(captures)
    answers_of(rows)  # by another engine, as in the next step of a run
    assert len(passes) > 3 * first
    assert len(captures) <= 2 * len((16, 8, 4, 2, 1))  # of at most 54 tokens a row, then of more


def test_a_replay_that_gives_other_numbers_is_refused() -> None:
    def capture(function: Any) -> Any:
        output = 1.1 * function()
        return lambda: output

    with pytest.raises(ConfigError, match="cuda_graphs must be false"):
        answers_of(StaticRows(CausalLM(qwen(VOCAB).eval()), capture))


def test_graphs_need_a_gpu() -> None:
    backend = LightningSettings(accelerator="cpu", cuda_graphs=True)
    with pytest.raises(ConfigError, match="cuda_graphs=true needs"):
        build_policy(settings_of("embedded/micro"), backend, temperature=1.0, optim=Optim(lr=0.0))
