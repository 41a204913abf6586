"""Credit by turn for any trainer, against all outcomes of a small game counted one by one."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from wordle_rl import token_advantages

# A game of at most two turns, whose first action 1 ends it: action -> reward of each turn.
GO_ON, LAST = 0.4, -0.3  # logits of action 1 on turn 1 and on turn 2
PAY = {(1,): [3.0], (0, 0): [0.5, 1.0], (0, 1): [0.5, 4.0]}


def chance(logit: float, action: int) -> float:
    prob = 1.0 / (1.0 + math.exp(-logit))
    return prob if action else 1.0 - prob


def likelihood(game: tuple[int, ...]) -> float:
    return math.prod(
        chance(logit, action) for logit, action in zip((GO_ON, LAST), game, strict=False)
    )


def scores(game: tuple[int, ...]) -> list[float]:
    """The derivative of each action's log-probability by the logit of its turn."""
    return [action - chance(logit, 1) for logit, action in zip((GO_ON, LAST), game, strict=False)]


def expected_estimate(games: int, **settings: Any) -> np.ndarray:
    """[2] mean over all groups of the estimate of the gradient by both logits."""
    total = np.zeros(2)
    for group in itertools.product(PAY, repeat=games):
        by_game = token_advantages(
            [PAY[game] for game in group],
            [[1] * len(game) for game in group],
            [0] * games,
            **settings,
        )
        for game, advantages in zip(group, by_game, strict=True):
            for turn, (advantage, score) in enumerate(zip(advantages, scores(game), strict=True)):
                total[turn] += math.prod(map(likelihood, group)) * advantage * score / games
    return total


def true_gradient() -> np.ndarray:
    """[2] derivative of the expected reward, counted over games."""
    return np.sum(
        [
            likelihood(game) * sum(rewards) * np.pad(scores(game), (0, 2 - len(game)))
            for game, rewards in PAY.items()
        ],
        axis=0,
    )


@pytest.mark.parametrize("games", [2, 3, 4])
def test_the_expected_estimate_is_the_gradient_where_games_have_others(games: int) -> None:
    reach_prob = 1.0 - chance(GO_ON, 1) ** (games - 1)  # another game reaches turn 2
    expected = true_gradient() * [1.0, reach_prob]
    np.testing.assert_allclose(expected_estimate(games), expected, atol=1e-12)


def test_the_mean_of_all_is_a_constant_share_of_it_on_the_first_turn() -> None:
    estimate = expected_estimate(3, baseline="mean")[0]
    assert estimate == pytest.approx(true_gradient()[0] * 2 / 3)


def test_sums_of_compared_rewards_are_biased() -> None:
    estimate, gradient = expected_estimate(3, credit="summed"), true_gradient()
    assert abs(estimate[0] - gradient[0]) > 0.1 * abs(gradient[0])


def test_credit_by_game_has_the_same_mean_and_more_spread() -> None:
    np.testing.assert_allclose(
        expected_estimate(3, credit="game")[0], true_gradient()[0], atol=1e-12
    )
    # The first game earned more on turn 1, and less on turn 2.
    rewards, tokens = [[5.0, 0.0], [1.0, 2.0]], [[1, 1], [1, 1]]
    by_game = token_advantages(rewards, tokens, [0, 0], credit="game")
    by_turn = token_advantages(rewards, tokens, [0, 0])
    assert by_game[0].tolist() == [2.0, 2.0]
    assert by_turn[0].tolist() == [2.0, -2.0]


def test_each_token_has_the_advantage_of_its_turn_among_its_own_group() -> None:
    rows = token_advantages(
        rewards=[[1.0, 2.0], [3.0], [10.0], [10.5]],
        tokens=[[2, 3], [1], [0], [2]],
        groups=[7, 7, 1, 1],
        discount=0.5,
    )
    # from turn 1 on: 1 + 0.5 x 2 = 2 against 3; nobody else plays turn 2
    assert [row.tolist() for row in rows] == [[-1, -1, 0, 0, 0], [1], [], [0.5, 0.5]]


def test_standardised_advantages_are_those_of_grpo() -> None:
    rows = token_advantages([[1.0], [2.0], [6.0]], [[1]] * 3, [0] * 3, baseline="standardised")
    values = np.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(np.concatenate(rows), (values - 3) / values.std(ddof=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": [0]}, "one entry for each game"),
        ({"groups": [0, 1]}, "a group must have 2 games or more"),
        ({"tokens": [[1], [1]]}, "game 0 must have one reward and one count"),
        ({"tokens": [[1, 1], [0.5]]}, "whole numbers"),
        ({"credit": "turns"}, "credit must be one of turn, game, summed"),
        ({"baseline": "none"}, "baseline must be one of others, mean, standardised"),
        ({"discount": 2.0}, "discount must be from 0 to 1"),
    ],
)
def test_wrong_input_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    inputs: dict[str, Any] = {
        "rewards": [[1.0, 2.0], [3.0]],
        "tokens": [[1, 1], [1]],
        "groups": [0, 0],
    }
    with pytest.raises(ValueError, match=message) as error:
        token_advantages(**inputs | changes)
    assert "\n" not in str(error.value)
