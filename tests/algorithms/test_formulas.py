"""Each algorithm's numbers are the published ones; test_whole_step.py has its weights and loss."""

from typing import Any

import numpy as np
import pytest

from tests.helpers.configs import composed
from wordle_rl.algorithms.adaptive_entropy import AdaptiveEntropy
from wordle_rl.algorithms.base import Algorithm, StepOutcomes
from wordle_rl.algorithms.cispo import Cispo
from wordle_rl.algorithms.clip_cov import ClipCov
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.dpo import Dpo
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.expert_iteration import ExpertIteration
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.rloo import Rloo
from wordle_rl.commands.build import build_experiment, resolve

PAPER_VALUES: dict[Algorithm, dict[str, float]] = {
    Grpo(): {"beta": 0.04, "clip_low": 0.2, "clip_high": 0.2},
    DrGrpo(): {"beta": 0.0, "clip_low": 0.2, "clip_high": 0.2},
    Dapo(): {"beta": 0.0, "clip_low": 0.2, "clip_high": 0.28},
    Gspo(): {"beta": 0.0, "clip_low": 3e-4, "clip_high": 4e-4},
    Rloo(): {"beta": 0.0},
    Dpo(): {"beta": 0.1},
    Cispo(): {"beta": 0.0, "clip_low": 1.0},
    ClipCov(): {"beta": 0.0, "cov_low": 1.0, "cov_high": 5.0, "share": 2e-4},
    AdaptiveEntropy(): {"beta": 0.0, "target": 0.2},
}


def test_clip_ranges_and_weights_of_a_loss_are_published_ones() -> None:
    for algorithm, values in PAPER_VALUES.items():
        assert {name: getattr(algorithm, name) for name in values} == values, algorithm


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


def test_a_group_of_rollouts_without_tokens_has_finite_weights():  # rows 8 and 12
    assert Grpo().weights(*rows(0, 8)).tolist() == [1 / 2, 1 / 16]
    for algorithm in (Dapo(), ExpertIteration(), Dpo()):
        assert np.isfinite(algorithm.weights(*rows(0, 0))).all()


def masks(share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Which of 1,000 tokens clip_cov learns, and their covariances by its formula."""
    random = np.random.default_rng(0)
    logprobs, advantages = -random.exponential(size=1000), random.normal(size=1000)
    covariance = (logprobs - logprobs.mean()) * (advantages - advantages.mean())
    algorithm = ClipCov(share=share)
    learnt = algorithm.learns(logprobs, advantages, np.random.default_rng(seed))
    assert learnt is not None
    return learnt, covariance


def test_clip_cov_holds_back_a_share_of_all_tokens_but_only_those_of_high_covariance():
    for share, count in ((0.01, 10), (2e-4, 1)):  # 0.2 tokens are one, as in the authors' code
        learnt, covariance = masks(share)
        assert (~learnt).sum() == count
        assert ((covariance[~learnt] >= 1) & (covariance[~learnt] <= 5)).all()
    mask, covariance = masks(1.0)
    assert (~mask == ((covariance >= 1) & (covariance <= 5))).all()
    assert (masks(0.01)[0] == masks(0.01)[0]).all() and (masks(0.01)[0] != masks(0.01, 1)[0]).any()


@pytest.mark.parametrize(("surprise", "weight"), [(0.0, 0.4), (0.05, 0.3), (0.2, 0.0), (3.0, 0.0)])
def test_the_entropy_bonus_falls_to_nothing_where_entropy_reaches_its_target(surprise, weight):
    algorithm = AdaptiveEntropy(entropy=0.4, target=0.2).adapted(np.array([-2.0, 0.0]) * surprise)
    assert isinstance(algorithm, AdaptiveEntropy) and algorithm.entropy == pytest.approx(weight)


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
    base = ["algorithm=dr_grpo", "sampling.max_tokens=10", *line.split()]
    algorithm = build_experiment(resolve(composed(*base))).recipe.algorithm
    # Two games of 7 and 23 tokens in all, or two guesses of 7 and 10, are a batch.
    for lengths in ((7, 23), (7, 10)):
        share = 1 / (2 * 10 * BUDGETS[line])
        assert algorithm.weights(*rows(*lengths)).tolist() == pytest.approx([share, share])
    variant = build_experiment(resolve(composed(*base, "algorithm.normalizer=5"))).recipe.algorithm
    assert variant.weights(*rows(7, 10)).tolist() == [1 / 10, 1 / 10]


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
    results = outcomes([3.0, 9.0, 5.0, 1.0, 2.0, 2.0, 4.0, 2.0], [0, 0, 0, 0, 1, 1, 1, 1])
    one_pair = Dpo().advantages(results)
    assert [a.item() for a in one_pair.per_turn] == [0, 1, 0, -1, 0, 0, 1, -1]
    assert one_pair.units is not None
    assert one_pair.units[1] == one_pair.units[3] and one_pair.units[6] == one_pair.units[7]
    assert len(set(one_pair.units)) == 6
    two_pairs = Dpo(pairs=2).advantages(results)  # 5 and 3 as well; the other 2s are equal
    assert [a.item() for a in two_pairs.per_turn] == [-1, 1, 1, -1, 0, 0, 1, -1]
    assert two_pairs.units is not None and two_pairs.units[0] == two_pairs.units[2]


def test_an_answer_is_charged_for_the_last_fifth_of_its_room():
    # Limit 100, buffer 20: free up to 80 tokens, half at 90, all of it at the limit.
    lengths = np.array([8, 80, 85, 90, 100])
    assert Dapo().penalties(lengths, 100)["overlong"].tolist() == [0.0, 0.0, -0.25, -0.5, -1.0]
    for kind in ("filter", "none"):
        assert Dapo(overlong=kind).penalties(lengths, 100) == {}
