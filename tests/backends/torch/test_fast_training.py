"""Layers written out for training give the hidden states and gradients of transformers."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.helpers.tiny import gemma, llama, lora_of, qwen
from wordle_rl.backends.sizes import LONGEST_WRITTEN_OUT
from wordle_rl.backends.tiny_model import build_model, save_untrained
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.fast import training as fast_training

VOCAB = 64
WIDTH = 14


def draw_sequences(rows: int, opening: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ids [N, T] with equal first tokens, and the places [N, T - 1] whose states are wanted."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, VOCAB, (rows, WIDTH), generator=generator)
    ids[:, :opening] = ids[0, :opening].clone()
    lengths = torch.randint(opening + 3, WIDTH + 1, (rows, 1), generator=generator)
    lengths[0] = WIDTH
    ids[torch.arange(WIDTH) >= lengths] = 0  # padding
    places = torch.arange(WIDTH - 1)
    wanted = torch.rand(rows, WIDTH - 1, generator=generator) < 0.6
    return ids, wanted & (places >= opening) & (places < lengths - 1)


def of_transformers(lm: CausalLM, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return lm.compute_hidden(ids)[:, :-1][wanted]


def gradients(model: nn.Module, states: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients of a loss that weighs every number of the states differently."""
    model.zero_grad()
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    (states.float() * weights).sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("rows", "opening"),
    [(1, 0), (1, 5), (6, 0), (6, 1), (6, 5)],
    ids=["one row", "one row with a prompt", "nothing shared", "one token shared", "shared prompt"],
)
@pytest.mark.parametrize("build", [qwen, llama])
def test_states_and_gradients_are_those_of_transformers(rows, opening, build):
    model: Any = build(VOCAB, factor=2.0).eval()
    with torch.no_grad():
        for layer in model.model.layers:  # biases and norms begin at 0 and 1
            for name, parameter in layer.named_parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn(parameter.shape, generator=_generator(name)))
    lm = CausalLM(model)
    ids, wanted = draw_sequences(rows, opening)
    expected, states = of_transformers(lm, ids, wanted), lm.compute_states(ids, wanted)
    assert torch.allclose(states, expected, atol=1e-5)
    exact, found = gradients(model, expected), gradients(model, states)
    assert found.keys() == exact.keys()
    assert len(found) == len([p for p in model.parameters() if p.requires_grad])
    for name, gradient in exact.items():
        assert torch.allclose(found[name], gradient, rtol=1e-4, atol=1e-4), name


def _generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(sum(name.encode()))


def test_padding_changes_nothing():
    lm = CausalLM(qwen(VOCAB).eval())
    ids, wanted = draw_sequences(6, 5)
    other = ids.clone()
    behind = wanted.flip(1).long().cummax(1).values.flip(1) == 0  # the last wanted place
    other[:, 1:][behind] = 9
    assert not torch.equal(ids, other)
    with torch.no_grad():
        states = [lm.compute_states(padded, wanted) for padded in (ids, other)]
    # Equal bit for bit on an Intel Xeon, and up to the last place on an AMD EPYC.
    torch.testing.assert_close(*states, atol=2e-6, rtol=0.0)


def test_bfloat16_is_as_near_to_float32_as_transformers_is():
    model = build_model(vocab_size=VOCAB, hidden_size=128, layers=4).eval()
    rounded: Any = build_model(vocab_size=VOCAB, hidden_size=128, layers=4).eval()
    lm, coarse = CausalLM(model), CausalLM(rounded.to(torch.bfloat16))
    ids, wanted = draw_sequences(30, 5)
    expected = of_transformers(lm, ids, wanted)
    exact = gradients(model, expected)
    gaps = []
    for compute in (coarse.compute_states, lambda *args: of_transformers(coarse, *args)):
        states = compute(ids, wanted)
        found = gradients(rounded, states)
        gap = sum((found[n].float() - g).square().sum() for n, g in exact.items()) ** 0.5
        gaps.append(((states.float() - expected).abs().mean().item(), float(gap)))
    [(states, gradient), (plain_states, plain_gradient)] = gaps
    assert 0 < states < 1.1 * plain_states
    assert 0 < gradient < 1.1 * plain_gradient


def test_other_models_and_long_sequences_go_through_transformers(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_training, "compute_states", None)  # calling it would fail
    shape = {"hidden_size": 32, "layers": 2, "heads": 4, "intermediate_size": 64}
    hooked = qwen(VOCAB)
    hooked.model.layers[0].register_forward_hook(lambda *_: None)
    ids, wanted = draw_sequences(3, 5)
    for model in (gemma(VOCAB), hooked, lora_of(str(save_untrained(tmp_path, **shape)))):
        lm = CausalLM(model.eval())
        assert torch.equal(lm.compute_states(ids, wanted), of_transformers(lm, ids, wanted))
    lm = CausalLM(qwen(VOCAB).eval())
    long = torch.ones(1, LONGEST_WRITTEN_OUT + 1, dtype=torch.long)
    wanted = torch.ones(1, LONGEST_WRITTEN_OUT, dtype=torch.bool)
    assert len(lm.compute_states(long, wanted)) == LONGEST_WRITTEN_OUT
