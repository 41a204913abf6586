"""Wins by the number of guesses that were given."""

import pytest

from tests.helpers.played_games import WORDS, given, played, summary_of
from wordle_rl.evaluation.results import depth_metrics, results_by_depth
from wordle_rl.evaluation.tables import report_table
from wordle_rl.game.rules import Clue, Game, State

GAMES = [
    played("crane", ["crane"]),
    given("crane", ["slate", "mound"], ["crane"]),
    given("sleep", ["slate", "mound"], ["crane", "abbey", "steel", "crept"]),
    given("sleep", ["slate"] * 4, ["sleep"]),
]


def test_games_are_counted_by_the_guesses_that_were_given():
    found = results_by_depth(GAMES)
    assert {k: (v["games"], v["wins"], v["win_rate"]) for k, v in found.items()} == {
        "0": (1, 1, 1.0), "2": (2, 1, 0.5), "4": (1, 1, 1.0),
    }  # fmt: skip
    # Given guesses count: the third guess won one game, and the other one is lost.
    assert found["2"]["mean_guesses_with_losses"] == pytest.approx((3 + 7) / 2)


def test_a_game_that_could_not_begin_has_its_depth_too():
    game = Game("crane", WORDS, state=State((Clue("slate", 0),), 1))
    game.forfeit()
    assert list(results_by_depth([game])) == ["1"]


def test_the_report_and_the_metrics_show_them():
    text = report_table([summary_of(GAMES)], 200)
    assert "after given guesses: 0 given 100.0 (1), 2 given 50.0 (2), 4 given 100.0 (1)" in text
    assert depth_metrics("val", GAMES)["val/given_2/win_rate"] == 0.5


def test_games_from_empty_boards_have_no_such_line():
    s = summary_of(GAMES[:1])
    assert "by_depth" not in s and "given" not in report_table([s])
