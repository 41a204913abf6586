"""Each algorithm's numbers and weights are the published ones; test_whole_step.py has its loss."""

from typing import Any

import numpy as np
import pytest

from tests.helpers.configs import composed
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

PUBLISHED: dict[Algorithm, dict[str, float]] = {
    Grpo(): {"beta": 0.04, "clip_low": 0.2, "clip_high": 0.2},
    DrGrpo(): {"beta": 0.0, "clip_low": 0.2, "clip_high": 0.2},
    Dapo(): {"beta": 0.0, "clip_low": 0.2, "clip_high": 0.28},
    Gspo(): {"beta": 0.0, "clip_low": 3e-4, "clip_high": 4e-4},
    Rloo(): {"beta": 0.0},
    Dpo(): {"beta": 0.1},
}


def test_clip_ranges_and_weights_of_a_loss_are_published_ones() -> None:
    for algorithm, values in PUBLISHED.items():
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
