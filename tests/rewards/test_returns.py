"""Rewards of whole games are ordered by construction. The returns of single turns are not.

With credit by turn a guess is trained on its return, the discounted rewards from its turn on. This
file measures how often returns rank two games of one secret against their outcomes, and by how
much. docs/INSIDE.md and wordle_rl/rewards/scoring.py state the numbers.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from tests.helpers.reward_sets import node
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Mistakes, RandomConsistent
from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.rewards.scoring import GameReward, RewardSet, build_reward_set

NAMES = ("phase2", "information")
Groups = list[list[Game]]
Scores = Callable[[str], list[list[GameReward]]]  # of a set
Returns = Callable[[str, float], list[list[list[float]]]]  # of a set and a discount


@pytest.fixture(scope="module")
def groups(original: Knowledge) -> Groups:
    """8 games on each of 100 secrets. The player errs in 30 % of its turns and wins two thirds."""
    good_player, bad_player = RandomConsistent(original, "allowed"), Mistakes(original, "allowed")
    rng, words = np.random.default_rng(0), original.words
    sample: Groups = []
    for secret in rng.choice(words.answers, 100, replace=False).tolist():
        games = [Game(secret, words.allowed_set) for _ in range(8)]
        for game in games:
            while game.status is GameStatus.PLAYING:
                chance, uniform = rng.random(2)
                player = bad_player if chance < 0.3 else good_player
                game.play(player.answer([game.state], np.array([uniform]))[0])
        sample.append(games)
    return sample


@pytest.fixture(scope="module")
def sets(original: Knowledge) -> dict[str, RewardSet]:
    return {name: build_reward_set(node("reward", name), original) for name in NAMES}


@pytest.fixture(scope="module")
def scores(groups: Groups, sets: dict[str, RewardSet]) -> Scores:
    """The reward of each game by the set of this name."""
    return cache(lambda name: [[sets[name].reward(game) for game in games] for games in groups])


@pytest.fixture(scope="module")
def returns(groups: Groups, sets: dict[str, RewardSet], scores: Scores) -> Returns:
    def of(name: str, discount: float) -> list[list[list[float]]]:
        return [
            [sets[name].to_go(*pair, discount) for pair in zip(*group, strict=True)]
            for group in zip(groups, scores(name), strict=True)
        ]

    return cache(of)


@pytest.mark.parametrize("discount", [1.0, 0.5])
def test_the_parts_of_a_return_add_up_to_it(discount, groups, sets, scores, returns):  # row 20
    game_returns = returns("phase2", discount)[0]
    for game, reward, to_go in zip(groups[0], scores("phase2")[0], game_returns, strict=True):
        parts = sets["phase2"].by_part(game, reward, discount)
        assert np.sum([*parts.values()], axis=0) == pytest.approx(to_go, abs=1e-7)
        values = [turn["value"] for turn in reward.turns]
        sums = [sum(v * discount**d for d, v in enumerate(values[k:])) for k in range(len(values))]
        assert parts["value"] == pytest.approx(sums, abs=1e-8)


def won_and_lost(groups: Groups) -> Iterator[tuple[int, int, int]]:
    """Group, won game and lost game of each pair on one secret."""
    for number, games in enumerate(groups):
        for first, second in permutations(range(len(games)), 2):
            if games[first].won and games[second].lost:
                yield number, first, second


# Share of pairs whose lost game has the higher return at its first turn, and the largest lead.
FIRST_TURN = {
    ("phase2", 1.0): (0.042, 7.3),
    ("phase2", 0.5): (0.177, 7.5),
    ("phase2", 0.0): (0.392, 5.1),
    ("information", 1.0): (0.0, -0.1),
    ("information", 0.5): (0.171, 1.3),
    ("information", 0.0): (0.392, 1.1),
}


@pytest.mark.parametrize(("name", "discount"), FIRST_TURN)
def test_the_return_of_a_first_turn_may_be_higher_in_a_lost_game(  # row 19
    name, discount, groups, returns
):
    values = returns(name, discount)
    leads = np.array(
        [values[g][lost][0] - values[g][won][0] for g, won, lost in won_and_lost(groups)]
    )
    share, lead = FIRST_TURN[name, discount]
    assert len(leads) > 1000
    assert np.mean(leads >= 0.0) == pytest.approx(share, abs=0.0006)
    assert leads.max() == pytest.approx(lead, abs=0.06)


@pytest.mark.parametrize("discount", [0.5, 0.0])
@pytest.mark.parametrize("name", NAMES)
def test_at_the_turn_that_wins_no_other_return_is_as_high(
    name, discount, groups, returns
):  # row 19
    """So the guess that wins is always preferred to what the rest of its group did at that turn."""
    count = 0
    for games, game_returns in zip(groups, returns(name, discount), strict=True):
        for first, second in permutations(range(len(games)), 2):
            last = len(game_returns[first]) - 1
            if not games[first].won or len(game_returns[second]) <= last:
                continue
            if games[second].won and len(game_returns[second]) == last + 1:
                continue  # it wins there too
            assert game_returns[first][last] > game_returns[second][last]
            count += 1
    assert count > 2000
