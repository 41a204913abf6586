"""The loss of a head in one function is as by plain autograd in float64."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import qwen
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.policy import token_outputs
from wordle_rl.policy.token_outputs import Wanted

PLACES, VOCABULARY, SIZE = 700, 301, 32
HALF = PLACES // 2


def wanted_of(kind: str = "tokens") -> Wanted:
    """A token at each place, or two with shares, or one of a few that a grammar leaves."""
    draw = np.random.default_rng(0)
    place, ids = np.arange(PLACES), draw.integers(0, VOCABULARY, PLACES)
    ids[HALF + 50 :] = ids[50:HALF]  # the same, after equal states
    shares, choices = np.ones(PLACES, np.float32), None
    if kind == "means":
        place = np.repeat(place, 2)
        ids = np.stack([ids, (ids + 3) % VOCABULARY], axis=1).ravel()
        shares = np.tile(np.array([0.25, 0.75], np.float32), PLACES)
    if kind == "choices":
        choices = [np.unique(np.array([token, 5, 9])) for token in ids]
    return Wanted(place=place, ids=ids, shares=shares, choices=choices)


def slow_scores(
    states: torch.Tensor, weight: torch.Tensor, wanted: Wanted, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies [P], without code of the package."""
    logits = states @ weight.T / temperature
    if wanted.choices is not None:
        mask = torch.ones_like(logits, dtype=torch.bool)
        for row, tokens in zip(mask, wanted.choices, strict=True):
            row[tokens] = False
        logits = logits.masked_fill(mask, -torch.inf)
    table = logits.log_softmax(-1)
    scores = table[wanted.place, wanted.ids] * torch.from_numpy(wanted.shares)
    sums = torch.zeros(len(states), dtype=states.dtype)
    sums = sums.index_add(0, torch.from_numpy(wanted.place), scores)
    return sums, -(table.exp() * table.clamp(min=-1e9)).sum(-1)


@pytest.mark.parametrize("at_once", [PLACES, 300])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize(
    ("kind", "temperature"), [*product(["tokens", "means", "choices"], [1.0, 0.7])]
)
def test_scores_and_gradients_are_as_by_autograd_in_float64(
    kind, temperature, entropy, trained, at_once, monkeypatch
):
    wanted = wanted_of(kind)
    lm: Any = CausalLM(qwen(VOCABULARY))
    head = lm.model.lm_head.weight.requires_grad_(trained)
    monkeypatch.setattr(token_outputs, "LOGITS_BYTES", 4 * VOCABULARY * at_once)
    torch.manual_seed(1)
    states = torch.randn(HALF, SIZE).repeat(2, 1).requires_grad_()
    params = [states, head] if trained else [states]
    expected = slow_scores(states.double(), head.double(), wanted, temperature)[: 1 + entropy]
    outputs = lm.score_states(states, wanted, temperature, entropy)
    factors = [torch.randn(PLACES) for _ in outputs]

    def differentiate(scores):
        terms = [f.to(s.dtype) @ s for f, s in zip(factors, scores, strict=True)]
        return torch.autograd.grad(torch.stack(terms).sum(), params)

    for a, b in zip(outputs, expected, strict=True):
        assert torch.allclose(a.double(), b, atol=2e-6, rtol=1e-6)
    for a, b in zip(differentiate(outputs), differentiate(expected), strict=True):
        assert (a - b).norm() <= 1e-6 * b.norm()


@pytest.mark.parametrize("kind", ["tokens", "means", "choices"])
def test_logits_are_computed_once_where_the_same_is_wanted_after_equal_states(kind):
    lm: Any = CausalLM(qwen(VOCABULARY))
    lm.model.lm_head.weight.requires_grad_(False)
    rows, compute = [], lm.compute_logits
    lm.compute_logits = lambda states, options: rows.append(len(states)) or compute(states, options)
    states = torch.randn(HALF, SIZE).repeat(2, 1)
    lm.score_states(states, wanted_of(kind), 0.7, entropy=False)
    assert sum(rows) == HALF + 50


def test_nothing_is_kept_where_no_gradient_is_wanted():
    lm, wanted = CausalLM(qwen(VOCABULARY)), wanted_of()
    states = torch.randn(PLACES, SIZE)
    with torch.inference_mode():
        [scores] = lm.score_states(states, wanted, 0.7, entropy=False)
    [expected] = lm.score_states(states, wanted, 0.7, entropy=False)
    assert not scores.requires_grad and expected.requires_grad and torch.equal(scores, expected)


def test_a_second_backward_pass_through_one_table_is_refused():
    lm, wanted = CausalLM(qwen(VOCABULARY)), wanted_of()
    states = torch.randn(PLACES, SIZE, requires_grad=True)
    [scores] = lm.score_states(states, wanted, 1.0, entropy=False)
    scores.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scores.sum().backward()
