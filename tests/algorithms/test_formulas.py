"""Each algorithm's weights, loss and gradient are the published ones, written out anew and slowly.

The slow formulas read one unpadded sequence after the other in float64, with plain autograd.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.backends import Backend
from tests.helpers.configs import composed
from tests.helpers.tiny import batch_of, full_forward, plain_copy, qwen
from wordle_rl.algorithms.base import Algorithm, StepOutcomes
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.dpo import Dpo
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.expert_iteration import ExpertIteration
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.ppo import Ppo
from wordle_rl.algorithms.rloo import Rloo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.batch import Batch, take

# Four conversations of unequal length; 1 marks sampled tokens, two answers in the first two.
ROWS = [
    ([3, 9, 4, 11, 12, 5, 6, 20, 21, 22], [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]),
    ([3, 9, 30, 31, 7, 8, 40], [0, 0, 1, 1, 0, 0, 1]),
    ([3, 50], [0, 1]),
    ([3, 9, 4, 33, 34, 35], [0, 0, 0, 1, 1, 1]),
]
LENGTHS = [5, 3, 1, 3]
ADVANTAGES = [0.7, -1.3, 0.4, -0.2]
# How far the policy has moved from the one that played: [token] of each row, then from its
# reference. Some tokens are beyond any clip on either side.
MOVED = [[0.1, -0.4, 0.5, 0.02, -0.1], [0.3, -0.5, 0.26], [0.2], [-0.3, 0.0, 0.23]]
SLIGHTLY = [[v / 700 for v in row] for row in MOVED]
APART = [[-0.6, 0.2, 0.1, 0.0, 0.4], [0.5, -0.2, 0.3], [-0.4], [0.1, 0.2, -0.7]]

Slow = Callable[[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]], torch.Tensor]


def units_of(algorithm: Algorithm) -> np.ndarray:
    """Two pairs of rows for DPO, else each row alone."""
    return np.array([0, 0, 1, 1]) if isinstance(algorithm, Dpo) else np.arange(4)


def given(
    backend: Backend,
    algorithm: Algorithm,
    advantages: list[float],
    moved: list[list[float]],
    temperature: float,
) -> Batch:
    """ROWS as a batch whose old and reference log-probabilities are that far from the policy's."""
    batch = batch_of(ROWS, advantages)
    now = backend.policy_of(qwen(), temperature=temperature).score(batch)
    old, ref = now.copy(), now.copy()
    for row, (_, marks) in enumerate(ROWS):
        places = np.flatnonzero(marks)
        old[row, places] -= moved[row]
        ref[row, places] -= APART[row]
    units = units_of(algorithm)
    weights = algorithm.weights(np.array(LENGTHS), np.array(advantages) != 0.0, units)
    batch = replace(batch, old_logprobs=old, ref_logprobs=ref, units=units)
    return take(batch, np.arange(4), weights)


def slow_gradient(
    formula: Slow, moved: list[list[float]], temperature: float
) -> tuple[float, dict[str, torch.Tensor]]:
    """Value and gradient of a formula of the log-probabilities of each row's sampled tokens."""
    plain = plain_copy(qwen())
    logprobs = [
        full_forward(plain, ids, temperature=temperature)[torch.tensor(marks, dtype=torch.bool)]
        for ids, marks in ROWS
    ]
    old = [lp.detach() - torch.tensor(v, dtype=torch.float64)
           for lp, v in zip(logprobs, moved, strict=True)]  # fmt: skip
    ref = [lp.detach() - torch.tensor(v, dtype=torch.float64)
           for lp, v in zip(logprobs, APART, strict=True)]  # fmt: skip
    loss = formula(logprobs, old, ref)
    loss.backward()
    return loss.item(), {n: p.grad for n, p in plain.named_parameters() if p.grad is not None}


def clipped(ratio: torch.Tensor, advantage: float, low: float, high: float) -> torch.Tensor:
    """PPO's loss of one ratio, by cases."""
    if advantage >= 0 and ratio.item() > 1 + high:
        return torch.tensor(-(1 + high) * advantage, dtype=torch.float64)
    if advantage < 0 and ratio.item() < 1 - low:
        return torch.tensor(-(1 - low) * advantage, dtype=torch.float64)
    return -ratio * advantage


def per_token(low: float, high: float, weight: Callable[[int], float]) -> Slow:
    """The sum over all tokens of the clipped loss times a weight that depends on the row."""

    def formula(now: list[Any], old: list[Any], ref: list[Any]) -> torch.Tensor:
        parts = [
            weight(row) * clipped((lp - before).exp(), ADVANTAGES[row], low, high)
            for row in range(4)
            for lp, before in zip(now[row], old[row], strict=True)
        ]
        return torch.stack(parts).sum()

    return formula


def gspo(now: list[Any], old: list[Any], ref: list[Any]) -> torch.Tensor:
    """Eq. 5 and 7 of arXiv 2507.18071."""
    parts = []
    for row in range(4):
        ratio = (now[row].sum() - old[row].sum()).div(LENGTHS[row]).exp()
        parts.append(clipped(ratio, ADVANTAGES[row], 3e-4, 4e-4) / 4)
    return torch.stack(parts).sum()


def expert_iteration(now: list[Any], old: list[Any], ref: list[Any]) -> torch.Tensor:
    """Cross-entropy over the tokens of rows 0 and 3."""
    return -(now[0].sum() + now[3].sum()) / 8


def dpo(now: list[Any], old: list[Any], ref: list[Any]) -> torch.Tensor:
    """Eq. 7 of arXiv 2305.18290: rows 0 and 3 are better than 1 and 2."""
    gain = [a.sum() - b.sum() for a, b in zip(now, ref, strict=True)]
    first, second = 0.1 * (gain[0] - gain[1]), 0.1 * (gain[3] - gain[2])
    return (torch.log1p((-first).exp()) + torch.log1p((-second).exp())) / 2


def with_kl(formula: Slow, beta: float, weight: Callable[[int], float]) -> Slow:
    def whole(now: list[Any], old: list[Any], ref: list[Any]) -> torch.Tensor:
        gaps = [r - n for n, r in zip(now, ref, strict=True)]
        penalties = [(g.exp() - g - 1).sum() * weight(row) for row, g in enumerate(gaps)]
        return formula(now, old, ref) + beta * torch.stack(penalties).sum()

    return whole


def by_length(row: int) -> float:
    return 1 / (4 * LENGTHS[row])


def alike(row: int) -> float:
    return 1 / 12


CASES: dict[str, tuple[Algorithm, Slow, list[float], list[list[float]]]] = {
    "grpo": (Grpo(), with_kl(per_token(0.2, 0.2, by_length), 0.04, by_length), ADVANTAGES, MOVED),
    "dr_grpo": (DrGrpo(normalizer=12), per_token(0.2, 0.2, lambda row: 1 / 48), ADVANTAGES, MOVED),
    "dapo": (Dapo(), per_token(0.2, 0.28, alike), ADVANTAGES, MOVED),
    "rloo": (Rloo(), per_token(0.2, 0.2, lambda row: 1 / 4), ADVANTAGES, MOVED),
    "gspo": (Gspo(), gspo, ADVANTAGES, MOVED),
    "gspo, hardly moved": (Gspo(), gspo, ADVANTAGES, SLIGHTLY),
    "expert_iteration": (ExpertIteration(), expert_iteration, [1.0, 0.0, 0.0, 1.0], MOVED),
    "dpo": (Dpo(), dpo, [1.0, -1.0, -1.0, 1.0], MOVED),
}


@pytest.mark.parametrize("micro_batch_tokens", [1000, 1])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_the_formula_in_the_paper(name, micro_batch_tokens, backend):
    # rows 12 to 15; one token a piece splits whatever may be split
    algorithm, formula, advantages, moved = CASES[name]
    batch = given(backend, algorithm, advantages, moved, 0.7)
    value, expected = slow_gradient(formula, moved, 0.7)
    policy = backend.policy_of(qwen(), temperature=0.7, micro_batch_tokens=micro_batch_tokens)
    found = backend.gradients(policy, batch, algorithm)
    scale = max(float(g.abs().max()) for g in expected.values())
    assert scale > 1e-4
    for parameter, slope in expected.items():
        assert torch.allclose(found[parameter], slope, atol=2e-5 * scale, rtol=1e-4), parameter
    metrics = policy.update(batch, algorithm)
    assert metrics["loss"] == pytest.approx(value, rel=1e-4, abs=1e-6)


# -- golden numbers, by hand ----------------------------------------------------------------------


def rows(
    *lengths: int, used: list[bool] | None = None, units: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arguments of weights: lengths, used and units."""
    n = len(lengths)
    return (
        np.array(lengths),
        np.ones(n, bool) if used is None else np.array(used),
        np.arange(n) if units is None else np.array(units),
    )


def test_two_sequences_of_2_and_8_tokens_weigh_as_published():  # row 12
    two = rows(2, 8)
    assert Grpo().weights(*two).tolist() == [1 / 4, 1 / 16]  # mean of means
    assert Gspo().weights(*two).tolist() == [1 / 4, 1 / 16]
    assert DrGrpo(normalizer=10).weights(*two).tolist() == [1 / 20, 1 / 20]  # a constant
    assert Dapo().weights(*two).tolist() == [1 / 10, 1 / 10]  # mean over tokens
    assert Rloo().weights(*two).tolist() == [1 / 2, 1 / 2]  # sum over tokens
    assert Ppo().weights(*two).tolist() == Sft().weights(*two).tolist() == [1 / 10, 1 / 10]
    assert Grpo().weights(*rows(0, 8)).tolist() == [1 / 2, 1 / 16]  # row 8: finite without tokens
    kept = rows(2, 8, used=[False, True])
    assert ExpertIteration().weights(*kept).tolist() == [0.0, 1 / 8]
    pairs = rows(2, 8, 5, 1, 1, used=[True, True, False, True, True], units=[0, 0, 2, 3, 3])
    # Two pairs: each has half, spread over its 10 and its 2 tokens.
    assert Dpo().weights(*pairs).tolist() == [1 / 20, 1 / 20, 0.0, 1 / 4, 1 / 4]


BUDGETS = {  # with answers of 10 tokens at most: how many answers a rollout may have
    "rollout=game": 6,
    "rollout=game rules.max_turns=4": 4,
    "rollout=game history=one": 5,
    "rollout=game history=upto4": 6,
    "rollout=game rules.invalid=retry rules.max_retries=2": 8,
    "rollout=game rules.unparsable=retry": 9,
    "rollout=turn": 1,
    "rollout=best_of": 1,
}


@pytest.mark.parametrize("line", BUDGETS)
def test_dr_grpo_divides_by_the_tokens_that_a_rollout_may_have(line):  # row 12
    given = ["algorithm=dr_grpo", "sampling.max_tokens=10", *line.split()]
    algorithm = build_experiment(resolve(composed(*given))).recipe.algorithm
    # Two games of 7 and 23 tokens in all, or two guesses of 7 and 10, are a batch.
    for lengths in ((7, 23), (7, 10)):
        share = 1 / (2 * 10 * BUDGETS[line])
        assert algorithm.weights(*rows(*lengths)).tolist() == pytest.approx([share, share])
    other = build_experiment(resolve(composed(*given, "algorithm.normalizer=5"))).recipe.algorithm
    assert other.weights(*rows(7, 10)).tolist() == [1 / 10, 1 / 10]


def outcomes(totals: list[float], groups: list[int], **fields: Any) -> StepOutcomes:
    """Rollouts of one turn each."""
    defaults: dict[str, Any] = {
        "groups": np.array(groups),
        "returns": [np.array([total]) for total in totals],
        "won": np.array([total > 0 for total in totals]),
        "complete": [np.array([True])] * len(totals),
        "by_turn": False,
        "discount": 1.0,
    }
    return StepOutcomes(**(defaults | fields))


def test_dpo_pairs_best_with_worst_and_leaves_out_equals():
    told = outcomes([3.0, 9.0, 5.0, 1.0, 2.0, 2.0, 4.0, 2.0], [0, 0, 0, 0, 1, 1, 1, 1])
    one = Dpo().advantages(told)
    assert [a.item() for a in one.per_turn] == [0, 1, 0, -1, 0, 0, 1, -1]
    assert one.units is not None
    assert one.units[1] == one.units[3] and one.units[6] == one.units[7]
    assert len(set(one.units)) == 6
    two = Dpo(pairs=2).advantages(told)  # 5 and 3 as well; the other 2s are equal
    assert [a.item() for a in two.per_turn] == [-1, 1, 1, -1, 0, 0, 1, -1]
    assert two.units is not None and two.units[0] == two.units[2]


def test_an_answer_is_charged_for_the_last_fifth_of_its_room():
    # Limit 100, buffer 20: free up to 80 tokens, half at 90, all of it at the limit.
    lengths = np.array([8, 80, 85, 90, 100])
    assert Dapo().penalties(lengths, 100)["overlong"].tolist() == [0.0, 0.0, -0.25, -0.5, -1.0]
    for kind in ("filter", "none"):
        assert Dapo(overlong=kind).penalties(lengths, 100) == {}
