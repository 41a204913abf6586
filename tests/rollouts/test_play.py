"""Games side by side: who wins in the turn in which the time runs out has won."""

from __future__ import annotations

from collections.abc import Mapping

from tests.helpers.tiny import WORDS
from wordle_rl.game.rules import Game, GameStatus, Rules
from wordle_rl.rollouts.play import new_games, play


def guess_crane(games: Mapping[int, Game], turn: int) -> None:
    for game in games.values():
        game.play("crane")


def test_a_game_won_in_the_turn_in_which_time_runs_out_is_won():  # row 37
    games = new_games(["crane", "slate", "crane"], WORDS, Rules())
    play(guess_crane, games, time_limit=0.0)
    found = [game.status for game in games]
    assert found == [GameStatus.WON, GameStatus.OUT_OF_TIME, GameStatus.WON]
    assert [len(game.turns) for game in games] == [1, 1, 1]


def test_a_game_lost_in_that_turn_is_lost_by_its_turns():  # row 37
    games = new_games(["slate", "sleep"], WORDS, Rules(max_turns=1))
    play(guess_crane, games, time_limit=0.0)
    assert [game.status for game in games] == [GameStatus.LOST, GameStatus.LOST]
