"""Each algorithm has its paper's baseline and scale under either credit, worked out by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.helpers.outcomes import outcomes_by_turn
from wordle_rl.algorithms.adaptive_entropy import AdaptiveEntropy
from wordle_rl.algorithms.base import StepOutcomes
from wordle_rl.algorithms.cispo import Cispo
from wordle_rl.algorithms.clip_cov import ClipCov
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.gdpo import Gdpo
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.max_rl import MaxRl
from wordle_rl.algorithms.rloo import Rloo

ALGORITHMS: dict[str, Any] = {
    "grpo": Grpo(),
    "gspo": Gspo(),
    "dapo": Dapo(),
    "dr_grpo": DrGrpo(normalizer=1),
    "rloo": Rloo(),
    "max_rl": MaxRl(),
    "cispo": Cispo(),
    "clip_cov": ClipCov(),
    "adaptive_entropy": AdaptiveEntropy(),
}
# Whose advantages are equal by construction.
GRPO_LIKE = ("grpo", "gspo", "dapo", "cispo", "clip_cov", "adaptive_entropy")

# Three groups of four games, mixed, that end after 1 to 4 turns. In group 1 the first turn is equal
# and the second is not. In group 2 no turn differs.
GROUPS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]
TO_GO = [[8, 2, 6], [5, 1], [2, 7], [4, 6], [5, 3], [2, 7], [0], [5], [2], [4, 1, 0, 5], [5], [2]]
TURNS = [len(rewards) for rewards in TO_GO]
# Group 0, turn by turn, and the deviations with n - 1:
#   8 4 0 4   mean 4   4 0 -4 0   squares 32, by 3: 4 / sqrt(32/3) = sqrt(1.5)
#   2 6 - 1   mean 3   -1 3 -2    squares 14, by 2: the deviation is sqrt(7)
#   6 - - 0   mean 3   3 -3       squares 18, by 1: 3 / sqrt(18) = sqrt(0.5)
#   - - - 5   alone
# Group 1: 5 5 5 5, then 1 3 - -: mean 2, -1 1, squares 2, by 1: 1 / sqrt(2) = sqrt(0.5)
# Leave-one-out, turn 0 of group 0: 8 - (4 + 0 + 4) / 3 = 16/3; 4 - (8 + 0 + 4) / 3 = 0.
# Turn 1: 2 - 7/2 = -1.5; 6 - 3/2 = 4.5; 1 - 8/2 = -3. Turn 2: 6 - 0; 0 - 6. Group 1: 1 - 3; 3 - 1.
ROOT, HALF, SEVENTH = 1.5**0.5, 0.5**0.5, 7**-0.5
BY_TURN = {
    "grpo": [
        [ROOT, -SEVENTH, HALF],
        [0, -HALF],
        [0, 0],
        [0, 3 * SEVENTH],
        [0, HALF],
        [0, 0],
        [-ROOT],
        [0],
        [0],
        [0, -2 * SEVENTH, -HALF, 0],
        [0],
        [0],
    ],
    "dr_grpo": [
        [4, -1, 3],
        [0, -1],
        [0, 0],
        [0, 3],
        [0, 1],
        [0, 0],
        [-4],
        [0],
        [0],
        [0, -2, -3, 0],
        [0],
        [0],
    ],
    "rloo": [
        [16 / 3, -1.5, 6],
        [0, -2],
        [0, 0],
        [0, 4.5],
        [0, 2],
        [0, 0],
        [-16 / 3],
        [0],
        [0],
        [0, -3, -6, 0],
        [0],
        [0],
    ],
    "max_rl": [
        [1, -1 / 3, 1],
        [0, -1 / 2],
        [0, 0],
        [0, 1],
        [0, 1 / 2],
        [0, 0],
        [-1],
        [0],
        [0],
        [0, -2 / 3, -1, 0],
        [0],
        [0],
    ],
}
# By game the whole reward is compared, here 8 4 0 4 in group 0 and 1 3 1 3 in group 1, all of
# whose games count however long they were. Group 1: mean 2, squares 4, by 3: 1 / sqrt(4/3).
# Leave-one-out in group 1: 1 - 7/3 = -4/3; 3 - 5/3 = 4/3.
TOTALS = [8, 1, 2, 4, 3, 2, 0, 1, 2, 4, 3, 2]
SIDE = 0.75**0.5
BY_GAME = {
    "grpo": [ROOT, -SIDE, 0, 0, SIDE, 0, -ROOT, -SIDE, 0, 0, SIDE, 0],
    "dr_grpo": [4, -1, 0, 0, 1, 0, -4, -1, 0, 0, 1, 0],
    "rloo": [16 / 3, -4 / 3, 0, 0, 4 / 3, 0, -16 / 3, -4 / 3, 0, 0, 4 / 3, 0],
    "max_rl": [1, -1 / 2, 0, 0, 1 / 2, 0, -1, -1 / 2, 0, 0, 1 / 2, 0],
}


def outcomes_by_game(
    totals: Sequence[float], turns: Sequence[int], groups: Sequence[int]
) -> StepOutcomes:
    """Rollouts [R] with these rewards and numbers of turns, credited by game and all lost."""
    returns = [[total] * count for total, count in zip(totals, turns, strict=True)]
    return outcomes_by_turn(returns, groups, by_turn=False, discount=1.0)


def advantages_by_turn(name: str) -> list[np.ndarray]:
    return ALGORITHMS[name].advantages(outcomes_by_turn(TO_GO, GROUPS)).per_turn


def advantages_by_game(name: str) -> list[np.ndarray]:
    return ALGORITHMS[name].advantages(outcomes_by_game(TOTALS, TURNS, GROUPS)).per_turn


def formula(name: str) -> str:
    return "grpo" if name in GRPO_LIKE else name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_credit_by_turn_the_games_of_a_group_that_still_play_are_compared(name):  # row 32
    advantages = advantages_by_turn(name)
    assert [len(values) for values in advantages] == TURNS
    for values, expected in zip(advantages, BY_TURN[formula(name)], strict=True):
        assert values == pytest.approx(np.array(expected), abs=1e-12)
    zeros = [np.array(row) == 0 for row in BY_TURN[formula(name)]]
    assert all((values[zero] == 0.0).all() for values, zero in zip(advantages, zeros, strict=True))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_credit_by_game_whole_games_are_compared(name):  # row 32
    for values, expected, turns in zip(
        advantages_by_game(name), BY_GAME[formula(name)], TURNS, strict=True
    ):
        assert values == pytest.approx(np.full(turns, expected), abs=1e-12)


def test_max_rl_learns_nothing_where_nothing_succeeds():
    advantages = MaxRl().compare(np.array([[0.0, 0, 0, 0], [0, 0, 0, 1], [0, -2, 1, 0]]))
    assert advantages.tolist() == [[0] * 4, [-1, -1, -1, 3], [0] * 4]


@pytest.mark.parametrize("by_turn", [False, True])
def test_gdpo_normalises_each_part_of_the_reward_by_itself(by_turn):  # row 10
    # Group 0: 0 0 0 4, mean 1, squares 12, by 3: -1 -1 -1 3 over 2. And 1 3 1 3: -s s -s s, see
    # SIDE. With weights 2 and 1 the sums are -1-s -1+s -1-s 3+s. Nothing differs in group 1.
    parts = [
        {"win": np.full(2, w), "value": np.full(2, v)}
        for w, v in zip([0, 0, 0, 4, 5, 5], [1, 3, 1, 3, 0.1, 0.1], strict=True)
    ]
    fields = {"parts": parts, "weights": {"win": 2.0}, "by_turn": by_turn}
    outcomes = outcomes_by_turn([[9, 9]] * 6, [0, 0, 0, 0, 1, 1], **fields)
    sums = np.array([-1 - SIDE, -1 + SIDE, -1 - SIDE, 3 + SIDE, 0.0, 0.0])
    expected = np.repeat(sums / (sums @ sums / 6) ** 0.5, 2).reshape(6, 2)
    assert np.array(Gdpo().advantages(outcomes).per_turn) == pytest.approx(
        expected, rel=1e-9, abs=0
    )
