"""Each distinct beginning computed once gives the hidden states and gradients of transformers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.families import build as build_family
from tests.helpers.tiny import gemma, llama, lora_of, plain_copy, qwen
from wordle_rl.backends.sizes import LONGEST_WRITTEN_OUT
from wordle_rl.backends.tiny_model import build_model, save_untrained
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.fast import training as fast_training
from wordle_rl.policy import batch

VOCAB = 64
WIDTH = 14
LINEAR = {"rope_type": "linear", "factor": 8.0}
BUILDS: dict[str, Callable[[], Any]] = {
    "qwen2": partial(qwen, VOCAB, factor=2.0),
    "llama": partial(llama, VOCAB, factor=2.0),
    "qwen3": partial(build_family, "qwen3"),
    "gemma3, a window shorter than rows": partial(gemma, VOCAB),
    "gemma3, a longer one": partial(gemma, VOCAB, window=WIDTH, rope_scaling=LINEAR),
    "transformers' layers": partial(build_family, "mistral"),
}


def draw_sequences(rows: int, opening: int, words: int = VOCAB) -> tuple[np.ndarray, np.ndarray]:
    """ids [N, T] with equal first tokens, and which of the others are trained [N, T].

    words: how many tokens there are, with padding. With few, sequences go on alike behind the
    opening, too.
    """
    random = np.random.default_rng(7)
    ids = random.integers(1, words, (rows, WIDTH))
    ids[:, :opening] = ids[0, :opening]
    lengths = random.integers(opening + 3, WIDTH + 1, (rows, 1))
    lengths[0] = WIDTH
    places = np.arange(WIDTH)
    ids[places >= lengths] = 0  # padding
    trained = random.random((rows, WIDTH)) < 0.6
    return ids, trained & (places > opening) & (places < lengths)


def of_transformers(model: Any, ids: np.ndarray, trained: np.ndarray) -> torch.Tensor:
    """The states before the trained tokens, of each sequence alone."""
    states = []
    for row, marks in zip(torch.from_numpy(ids), torch.from_numpy(trained), strict=True):
        states.append(model.model(input_ids=row[None]).last_hidden_state[0, :-1][marks[1:]])
    return torch.cat(states)


def gradients(model: nn.Module, states: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients of a loss that weighs every number of the states differently."""
    model.zero_grad()
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    (states.float() * weights).sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("rows", "opening", "words"),
    [(1, 0, VOCAB), (1, 5, VOCAB), (6, 0, VOCAB), (6, 5, VOCAB), (40, 0, 3), (40, 5, 3)],
    ids=[
        "one row",
        "one row with a prompt",
        "nothing shared",
        "shared prompt",
        "deep sharing",
        "deep sharing behind a prompt",
    ],
)
@pytest.mark.parametrize("least", [1, 5, 32])  # rows of a block
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_states_and_gradients_are_those_of_transformers(
    rows, opening, words, least, build, monkeypatch
):
    monkeypatch.setattr(batch, "_LEAST", least)
    model: Any = build()
    with torch.no_grad():
        for layer in model.model.layers:  # biases and norms begin at 0 and 1
            for name, parameter in layer.named_parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn(parameter.shape, generator=_generator(name)))
    hf_model, lm = plain_copy(model), CausalLM(model.eval())
    assert lm.is_fast == (build is not BUILDS["transformers' layers"])
    ids, trained = draw_sequences(rows, opening, words)
    expected, states = of_transformers(hf_model, ids, trained), lm.read_states(ids, trained)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)
    hf_grads, grads = gradients(hf_model, expected), gradients(model, states)
    assert grads.keys() == hf_grads.keys()
    assert len(grads) == len(list(model.model.parameters()))  # heads may be apart
    total = sum(float(gradient.square().sum()) for gradient in hf_grads.values())
    gap = sum(float((grads[name] - gradient).square().sum()) for name, gradient in hf_grads.items())
    assert gap**0.5 < 2e-6 * total**0.5


def _generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(sum(name.encode()))


def test_padding_changes_nothing():
    lm = CausalLM(qwen(VOCAB).eval())
    ids, trained = draw_sequences(6, 5)
    new_ids = ids.copy()
    new_ids[trained[:, ::-1].cumsum(1)[:, ::-1] == 0] = 9  # behind the last trained token
    assert not np.array_equal(ids, new_ids)
    with torch.no_grad():
        states, new_states = (lm.read_states(rows, trained) for rows in (ids, new_ids))
    assert torch.equal(states, new_states)


@pytest.mark.parametrize(
    "build",
    [partial(build_model, vocab_size=VOCAB, hidden_size=128, layers=4), partial(gemma, VOCAB)],
    ids=["qwen2", "gemma3"],
)
def test_bfloat16_is_as_near_to_float32_as_transformers_is(build):
    model, bf16_model = build().eval(), build().eval()
    lm = CausalLM(bf16_model.to(torch.bfloat16))
    inputs = draw_sequences(30, 5)
    expected = of_transformers(model, *inputs)
    hf_grads = gradients(model, expected)
    gaps = []
    for compute in (lm.read_states, partial(of_transformers, bf16_model)):
        states = compute(*inputs)
        grads = gradients(bf16_model, states)
        gap = sum((grads[n].float() - g).square().sum() for n, g in hf_grads.items()) ** 0.5
        gaps.append(((states.float() - expected).abs().mean().item(), float(gap)))
    [(states, gradient), (hf_states, hf_gradient)] = gaps
    assert 0 < states < 1.1 * hf_states
    assert 0 < gradient < 1.1 * hf_gradient


def test_other_models_and_long_sequences_go_through_transformers(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_training, "compute_states", None)  # calling it would fail
    shape = {"hidden_size": 32, "layers": 2, "heads": 4, "intermediate_size": 64}
    module = qwen(VOCAB)
    module.model.layers[0].register_forward_hook(lambda *_: None)
    ids, trained = draw_sequences(3, 5)
    for model in (build_family("mistral"), module, lora_of(str(save_untrained(tmp_path, **shape)))):
        assert len(CausalLM(model.eval()).read_states(ids, trained)) == trained.sum()
    lm = CausalLM(qwen(VOCAB).eval())
    rows = np.ones((1, LONGEST_WRITTEN_OUT + 2), np.int64)
    assert len(lm.read_states(rows, rows > 0)) == LONGEST_WRITTEN_OUT + 1
