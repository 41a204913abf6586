"""Credit by turn: who is compared with whom, worked out by hand."""

from typing import Any

import numpy as np
import pytest

from sweeps.credit.parts import TurnSums
from tests.helpers.outcomes import outcomes_by_turn
from wordle_rl.algorithms.credit import Scale, group_advantages
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.rloo import Rloo, leave_one_out

ALGORITHMS = [Grpo(), DrGrpo(normalizer=1), Rloo()]


def advantages(algorithm: Any, *to_go: list[float], n: int = 2) -> list[list[float]]:
    """With credit by turn, of rollouts with these rewards to go, n to a group."""
    groups = [i // n for i in range(len(to_go))]
    return [a.tolist() for a in algorithm.advantages(outcomes_by_turn(to_go, groups)).per_turn]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_equal_rewards_give_exact_zeros(algorithm: Any) -> None:  # row 10
    third = 1.0 / 3.0
    rewards = [[third, 0.1], [third, 0.1], [third, 0.1]]
    assert advantages(algorithm, *rewards, n=3) == [[0.0, 0.0]] * 3
    assert advantages(algorithm, [0.1], [0.1], [0.1], n=1) == [[0.0]] * 3


@pytest.mark.parametrize("scale", ["std", "none"])
def test_a_group_of_one_is_refused(scale: Scale) -> None:  # row 10
    for refuse in (
        lambda: Grpo(scale=scale).check(1),
        lambda: group_advantages(np.zeros((4, 1)), scale),
    ):
        with pytest.raises(ValueError, match="num_generations must be 2 or more"):
            refuse()
    Grpo(scale=scale).check(2)


@pytest.mark.parametrize("to_go", [[[1.0], [-1.0]], [[1.0, 0.0], [0.0, 1.0]]])
def test_rewards_or_advantages_that_add_up_to_nothing_teach(to_go) -> None:  # row 26
    assert DrGrpo(normalizer=1).advantages(outcomes_by_turn(to_go, [0, 0])).teaches.all()


@pytest.mark.parametrize("scale", ["none", "std"])
def test_rewards_that_differ_by_rounding_give_exact_zeros(scale: Scale) -> None:
    rewards = np.array([[0.3, 0.1 + 0.2, 0.3], [7e5, 7e5 + 1e-9, 7e5]])
    assert (rewards[:, 0] != rewards[:, 1]).all()
    assert not group_advantages(rewards, scale).any()
    assert not leave_one_out(rewards).any()
    for algorithm in (Grpo(scale=scale), Rloo()):
        assert not np.array(advantages(algorithm, *rewards.reshape(6, 1).tolist(), n=3)).any()


def test_sums_of_compared_rewards_pay_for_turns_that_others_do_not_play() -> None:
    # rewards 1, 2, 6 against 3, 0 against 2: to go 9, 8, 6 and 3, 0 and 2
    long, middle, short = advantages(
        TurnSums(scale="none"), [9.0, 8.0, 6.0], [3.0, 0.0], [2.0], n=3
    )
    assert long == [(1 - 2) + (2 - 1) + 0, (2 - 1) + 0, 0]  # alone at the end: nothing to compare
    assert middle == [(3 - 2) + (0 - 1), 0 - 1]
    assert short == [2 - 2]
    # by the reward to go the long game is the best of the three at its first turn
    best, worse, worst = advantages(Grpo(scale="none"), [9.0, 8.0, 6.0], [3.0, 0.0], [2.0], n=3)
    assert best[0] > worse[0] > worst[0]
