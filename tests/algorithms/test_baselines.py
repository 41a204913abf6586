"""Each algorithm has its paper's baseline and scale under either credit, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.outcomes import outcomes_by_game, outcomes_by_turn
from tests.helpers.tiny import (
    AlwaysGuesses,
    many_stops,
    policy_of,
    qwen,
    qwen_like_tokenizer,
    recipe_of,
    step_of,
)
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.rloo import Rloo
from wordle_rl.game.rules import PlayedTurn
from wordle_rl.training.step import train_step

ALGORITHMS: dict[str, Any] = {
    "grpo": Grpo(),
    "gspo": Gspo(),
    "dapo": Dapo(),
    "dr_grpo": DrGrpo(normalizer=1),
    "rloo": Rloo(),
}
SCALED = ("grpo", "gspo", "dapo")  # whose advantages are equal by construction

# Three groups of four games, mixed, that end after 1 to 4 turns. In group 1 the first turn is equal
# and the second is not. In group 2 no turn differs.
GROUPS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]
TO_GO = [
    [8, 2, 6], [5, 1], [2, 7],
    [4, 6], [5, 3], [2, 7],
    [0], [5], [2],
    [4, 1, 0, 5], [5], [2],
]  # fmt: skip
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
        [ROOT, -SEVENTH, HALF], [0, -HALF], [0, 0],
        [0, 3 * SEVENTH], [0, HALF], [0, 0],
        [-ROOT], [0], [0],
        [0, -2 * SEVENTH, -HALF, 0], [0], [0],
    ],
    "dr_grpo": [
        [4, -1, 3], [0, -1], [0, 0],
        [0, 3], [0, 1], [0, 0],
        [-4], [0], [0],
        [0, -2, -3, 0], [0], [0],
    ],
    "rloo": [
        [16 / 3, -1.5, 6], [0, -2], [0, 0],
        [0, 4.5], [0, 2], [0, 0],
        [-16 / 3], [0], [0],
        [0, -3, -6, 0], [0], [0],
    ],
}  # fmt: skip
# By game the whole reward is compared, here 8 4 0 4 in group 0 and 1 3 1 3 in group 1, all of
# whose games count however long they were. Group 1: mean 2, squares 4, by 3: 1 / sqrt(4/3).
# Leave-one-out in group 1: 1 - 7/3 = -4/3; 3 - 5/3 = 4/3.
TOTALS = [8, 1, 2, 4, 3, 2, 0, 1, 2, 4, 3, 2]
SIDE = 0.75**0.5
BY_GAME = {
    "grpo": [ROOT, -SIDE, 0, 0, SIDE, 0, -ROOT, -SIDE, 0, 0, SIDE, 0],
    "dr_grpo": [4, -1, 0, 0, 1, 0, -4, -1, 0, 0, 1, 0],
    "rloo": [16 / 3, -4 / 3, 0, 0, 4 / 3, 0, -16 / 3, -4 / 3, 0, 0, 4 / 3, 0],
}


def found_by_turn(name: str) -> list[np.ndarray]:
    return ALGORITHMS[name].advantages(outcomes_by_turn(TO_GO, GROUPS)).per_turn


def found_by_game(name: str) -> list[np.ndarray]:
    return ALGORITHMS[name].advantages(outcomes_by_game(TOTALS, TURNS, GROUPS)).per_turn


def formula(name: str) -> str:
    return "grpo" if name in SCALED else name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_credit_by_turn_the_games_of_a_group_that_still_play_are_compared(name):  # row 32
    found = found_by_turn(name)
    assert [len(values) for values in found] == TURNS
    for values, expected in zip(found, BY_TURN[formula(name)], strict=True):
        assert values == pytest.approx(np.array(expected), abs=1e-12)
    zeros = [np.array(each) == 0 for each in BY_TURN[formula(name)]]
    assert all((values[zero] == 0.0).all() for values, zero in zip(found, zeros, strict=True))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_credit_by_game_whole_games_are_compared(name):  # row 32
    for values, expected, turns in zip(
        found_by_game(name), BY_GAME[formula(name)], TURNS, strict=True
    ):
        assert values == pytest.approx(np.full(turns, expected), abs=1e-12)


def ratios(found: list[np.ndarray], others: list[np.ndarray]) -> set[float]:
    """By which factors the advantages that are not 0 differ."""
    one, other = np.concatenate(found), np.concatenate(others)
    assert ((one == 0.0) == (other == 0.0)).all()
    return {round(float(ratio), 9) for ratio in one[one != 0.0] / other[one != 0.0]}


def test_credit_by_turn_tells_the_algorithms_apart_where_their_papers_differ():  # row 32
    for name in SCALED:  # equal by construction: they differ in the loss
        assert ratios(found_by_turn(name), found_by_turn("grpo")) == {1.0}
    # By game, groups have one size. So leave-one-out is the distance from the mean times n / (n-1),
    # a constant that AdamW and Muon take out.
    assert ratios(found_by_game("rloo"), found_by_game("dr_grpo")) == {round(4 / 3, 9)}
    # By turn, as many are compared as still play: 4, 3 and 2.
    by_turn = ratios(found_by_turn("rloo"), found_by_turn("dr_grpo"))
    assert by_turn == {round(4 / 3, 9), 1.5, 2.0}
    # A deviation differs from group to group and from turn to turn.
    assert len(ratios(found_by_turn("grpo"), found_by_turn("dr_grpo"))) == 4
    assert len(ratios(found_by_game("grpo"), found_by_game("dr_grpo"))) == 2


def gradient_of_a_step(algorithm: Any) -> dict[str, torch.Tensor]:
    """The gradient of the first update of a step of games that end after 1 to 3 turns."""

    def reward(turn: PlayedTurn) -> float:
        return float(turn.won) + 0.05 * turn.tokens

    policy = policy_of(
        qwen(340), AlwaysGuesses(qwen_like_tokenizer(), extra_stop_ids=many_stops(340))
    )
    found: dict[str, torch.Tensor] = {}

    def keep_gradient() -> None:
        for name, parameter in policy.model.named_parameters():
            assert parameter.grad is not None
            found[name] = parameter.grad.clone()

    policy.apply_gradients = [keep_gradient]
    recipe = recipe_of(algorithm, reward, credit="turn", discount=0.5, groups=4, num_generations=4)
    result = train_step(step_of(policy, recipe))
    assert len({len(values) for values in result.advantages}) > 1
    return found


def test_with_one_update_gspo_has_the_gradient_of_grpo_and_the_others_do_not():  # row 32
    grpo = gradient_of_a_step(Grpo(beta=0.0))
    largest = max(float(slope.abs().max()) for slope in grpo.values())

    def gap(algorithm: Any) -> float:
        """The largest difference, once both gradients have the same length."""
        other = gradient_of_a_step(algorithm)
        norms = [sum(float((s**2).sum()) for s in g.values()) ** 0.5 for g in (grpo, other)]
        unit = norms[0] / norms[1]
        return max(float((other[name] * unit - grpo[name]).abs().max()) for name in grpo) / largest

    assert gap(Gspo()) < 1e-5
    for algorithm in (Dapo(overlong="none", resample=0), DrGrpo(normalizer=1), Rloo()):
        assert gap(algorithm) > 0.01
