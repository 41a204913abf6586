"""Secrets sorted by half of the start's games, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.played_games import played
from wordle_rl.evaluation.gains import group_gains
from wordle_rl.game.rules import Game


def games_of(wins: dict[str, str]) -> list[Game]:
    """Secret -> its games, w for a win and l for a loss."""
    return [
        played(secret, [secret] if result == "w" else ["steel"] * 6)
        for secret, results in wins.items()
        for result in results
    ]


def test_one_half_sorts_the_secrets_and_the_other_is_compared():
    before = games_of({"crane": "llww", "sleep": "wlll", "mound": "wwwl", "abbey": "lllw"})
    after = games_of({"crane": "wwww", "sleep": "wwll", "mound": "wwww", "abbey": "lllw"})
    found = [(g.wins, g.secrets, g.before, g.after) for g in group_gains(before, [after])]
    assert found == [
        ("0 of 2", 2, pytest.approx(3 / 4), pytest.approx(5 / 8)),  # crane and abbey
        ("1 of 2", 1, 0.0, 0.5),
        ("2 of 2", 1, 0.5, 1.0),
    ]


def test_runs_are_averaged():
    before, lost = games_of({"crane": "lw"}), games_of({"crane": "ll"})
    won = games_of({"crane": "ww"})
    (group,) = group_gains(before, [won, lost, lost])
    assert group.after == pytest.approx(1 / 3)


def test_a_player_that_learnt_nothing_gains_nothing_in_any_group():
    # Were one half to sort and to be compared, the hardest group would seem to gain 20 points.
    chances, rng = np.random.default_rng(3).uniform(0.2, 0.9, 400), np.random.default_rng(4)
    won, lost = played("crane", ["crane"]).status, played("crane", ["steel"] * 6).status

    def draw() -> list[Game]:
        games = []
        for number, chance in enumerate(chances):
            for result in rng.random(16) < chance:
                games.append(Game(f"{number:05}", frozenset(), status=won if result else lost))
        return games

    for group in group_gains(draw(), [draw(), draw()]):
        error = np.sqrt(0.25 / (group.secrets * 8) + 0.25 / (group.secrets * 32))
        assert abs(group.after - group.before) < 4 * error


def test_many_games_have_groups_by_quarters():
    wins = {f"{won:05}": "w" * won + "l" * (16 - won) for won in range(9)}
    before = [
        Game(secret, frozenset(), status=played("crane", ["crane"]).status)
        if result == "w"
        else played(secret, ["steel"] * 6)
        for secret, results in wins.items()
        for result in results
    ]
    found = [(group.wins, group.secrets) for group in group_gains(before, [before])]
    assert found == [
        ("0 of 8", 1), ("1-2 of 8", 2), ("3-4 of 8", 2), ("5-6 of 8", 2), ("7 of 8", 1),
        ("8 of 8", 1),
    ]  # fmt: skip


def test_unequal_numbers_of_games_have_no_groups():
    before = games_of({"crane": "ll", "sleep": "w"})
    assert group_gains(before, [before]) == []
    assert group_gains(games_of({"crane": "l"}), [games_of({"crane": "l"})]) == []
