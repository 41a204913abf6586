"""The memory plan agrees with what torch's allocator hands out in real rollouts and updates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, LlamaConfig, Qwen2Config

from tests.helpers.memory import (
    Case,
    build_case,
    bytes_of,
    longest_games,
    peak_bytes,
    play_longest,
)
from tests.helpers.updates import PLAIN
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.memory_simulation import LiveBytes, simulate_learning
from wordle_rl.backends.torch.token_outputs import WantedTokens, read_states
from wordle_rl.policy.memory_plan import GameSize

pytestmark = pytest.mark.slow

SHORT = GameSize(opening=40, feed=10, whole=100, trained=50)
LONG = GameSize(opening=500, feed=20, whole=540, trained=20)  # beyond the short paths of the CPU
VOCABULARY, ROWS = 1500, 4


def qwen_config(**sizes: int) -> Any:
    return Qwen2Config(
        **{
            "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 320,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, **sizes,
        }
    )  # fmt: skip


def gemma_config() -> Any:
    return Gemma3TextConfig(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=320, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, sliding_window=32,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], pad_token_id=0,
    )  # fmt: skip


KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any], GameSize]] = {
    "qwen": (qwen_config, {"precision": "fp32", "lora": False}, SHORT),
    "qwen muon bf16": (qwen_config, {"precision": "bf16", "lora": False, "optim": "muon"}, SHORT),
    "qwen lora": (qwen_config, {"precision": "fp32", "lora": True}, SHORT),
    "long qwen lora": (
        lambda: qwen_config(hidden_size=64, intermediate_size=96),
        {"precision": "fp32", "lora": True}, LONG,
    ),
    "gemma lora bf16": (gemma_config, {"precision": "bf16", "lora": True}, SHORT),
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Case, GameSize]:
    config, settings, game = KINDS[request.param]
    return build_case(tmp_path_factory.mktemp("planned"), config(), **settings), game


def close(measured: float) -> Any:
    return pytest.approx(measured, rel=0.15)


def test_weights_adapters_and_moments_are_those_of_a_trained_policy(kind):
    case, game = kind
    kept = case.planned.keep(case.optim, reference=False)
    case.policy.update(longest_games(game, 1, VOCABULARY), PLAIN)
    model, inner = case.policy.model, case.policy._trained.lm.model
    # Buffers, such as rotary frequencies, are no weights.
    assert kept.weights + kept.adapters + kept.sums == bytes_of(
        [*model.parameters(), *inner.parameters()]
    )
    moments = [
        value
        for optimizer in case.policy.optimizers
        for state in optimizer.state.values()
        for name, value in state.items()
        if name != "step"
    ]
    assert kept.optimizer == bytes_of(moments)
    assert kept.trained == case.policy.num_parameters[0]


def test_a_reference_takes_what_was_planned(kind):
    case, _ = kind
    lm = case.policy._trained.lm
    before = {p.data_ptr() for p in (*lm.model.parameters(), *case.policy.model.parameters())}
    case.policy.keep_reference()
    reference: Any = case.policy._trained._reference
    new = [p for p in reference.model.parameters() if p.data_ptr() not in before]
    assert case.planned.keep(case.optim, reference=True).reference == bytes_of(new)


def test_keys_and_values_are_those_of_games_of_full_length(kind):
    case, game = kind
    engine = play_longest(case.policy, game, ROWS, VOCABULARY)
    held = [tensor for pair in engine._buffers._layers for tensor in pair]
    playing = case.planned.play(game, ROWS)
    assert playing.keys_values.at(ROWS) == close(bytes_of(held))


def test_the_peak_of_rollouts_is_the_planned_one(kind):
    case, game = kind
    measured = peak_bytes(lambda: play_longest(case.policy, game, ROWS, VOCABULARY))
    assert case.planned.play(game, ROWS).at(ROWS) == close(measured)


def test_the_peak_of_updates_is_the_planned_one(kind):
    case, game = kind
    case.policy._micro_batches.tokens = ROWS * game.whole
    batch = longest_games(game, 2 * ROWS, VOCABULARY)  # two micro-batches
    case.policy.update(batch, PLAIN)  # makes the moments
    measured = peak_bytes(lambda: case.policy.update(batch, PLAIN))
    kept = case.planned.keep(case.optim, reference=False)
    learning = case.planned.learn(game, ROWS * game.whole)
    assert kept.gradients + max(learning.total, kept.step) == close(measured)


def test_activations_are_what_the_backward_pass_keeps(kind):
    case, game = kind
    lm, batch = case.policy._trained.lm, longest_games(game, ROWS, VOCABULARY)
    ids, wanted = torch.from_numpy(batch.ids), torch.from_numpy(batch.trained[:, 1:])
    own = {p.untyped_storage().data_ptr() for p in lm.model.parameters()}
    kept = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        lm.compute_states(ids, wanted)
    saved = bytes_of(t for t in kept if t.untyped_storage().data_ptr() not in own)
    assert case.planned.learn(game, ROWS * game.whole).activations == close(saved)


def test_checkpointing_keeps_the_inputs_of_layers_alone(kind):
    case, game = kind
    tokens = ROWS * game.whole
    plain, lean = (case.planned.learn(game, tokens, checkpointing=c) for c in (False, True))
    assert lean.activations < plain.activations / 2
    assert lean.logits == pytest.approx(plain.logits, rel=0.01)


@pytest.mark.parametrize("lora", [False, True])
def test_logits_grow_with_the_vocabulary(lora, tmp_path: Path):
    peaks = []
    for vocabulary in (20_000, 40_000):
        config = qwen_config(vocab_size=vocabulary, hidden_size=16, intermediate_size=16)
        folder = tmp_path / str(vocabulary)
        case = build_case(folder, config, precision="fp32", lora=lora)
        lm, states = case.policy._trained.lm, torch.zeros(30, 16)

        def learn(lm: CausalLM = lm, states: torch.Tensor = states) -> None:
            leaf = states.clone().requires_grad_()
            wanted = WantedTokens(torch.zeros(30, dtype=torch.long))
            [logprobs] = read_states(lm, leaf, wanted, temperature=0.5)
            logprobs.exp().sum().backward()

        game = GameSize(opening=10, feed=1, whole=41, trained=30)
        planned = case.planned.learn(game, 41).logits
        assert planned == close(peak_bytes(learn))
        peaks.append(planned)
    assert peaks[1] == pytest.approx(2 * peaks[0], rel=0.02)


def test_live_bytes_counts_tensors_until_they_are_freed():
    with LiveBytes() as live:
        first = torch.zeros(100)
        view = first[:10]
        second = first + 1.0
        assert live.now == live.peak == 800
        del first
        assert live.now == 800  # the view keeps it
        del view, second
        assert (live.now, live.peak) == (0, 800)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a loaded machine takes minutes
@pytest.mark.parametrize("family", [LlamaConfig, Qwen2Config])
def test_a_model_of_smollm2s_shape_is_planned_within_15_percent(family, tmp_path):
    vocabulary = 49_152
    config = family(
        vocab_size=vocabulary, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
    )  # fmt: skip
    case = build_case(tmp_path, config, precision="fp32", lora=True)
    game = GameSize(opening=250, feed=30, whole=300, trained=150)
    trained, everything = case.policy.num_parameters
    if family is LlamaConfig:
        assert everything - trained == 134_515_008
    measured = peak_bytes(lambda: play_longest(case.policy, game, 8, vocabulary))
    assert case.planned.play(game, 8).at(8) == close(measured)
    case.policy._micro_batches.tokens = game.whole
    batch = longest_games(game, 2, vocabulary)
    case.policy.update(batch, PLAIN)
    measured = peak_bytes(lambda: case.policy.update(batch, PLAIN))
    kept = case.planned.keep(case.optim, reference=False)
    learning = case.planned.learn(game, game.whole)
    assert kept.gradients + max(learning.total, kept.step) == close(measured)


def test_a_simulation_leaves_no_gradients(tmp_path: Path):
    case = build_case(tmp_path, qwen_config(), precision="fp32", lora=True)
    trained = [p for p in case.planned.model.parameters() if p.requires_grad]
    simulate_learning(case.planned.lm, SHORT, 1, trained=trained)
    assert trained and all(p.grad is None for p in trained)
