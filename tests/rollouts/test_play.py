"""Games side by side: who wins in the turn in which the time runs out has won."""

from __future__ import annotations

from collections.abc import Sequence

from tests.helpers.tiny import WORDS
from wordle_rl.game.rules import GameStatus, PlayedTurn, Rules, State
from wordle_rl.rollouts.play import Reply, new_games, play


class Guesses:
    """Guesses the same word in every game."""

    def start(self, states: Sequence[State]) -> list[bool]:
        return [True] * len(states)

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        return [Reply.of_guess("crane") for _ in games]

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        return [True] * len(games)

    def leave(self, games: Sequence[int]) -> None:
        pass


def test_a_game_won_in_the_turn_in_which_time_runs_out_is_won():  # row 37
    games = new_games(["crane", "slate", "crane"], WORDS, Rules())
    play(Guesses(), games, time_limit=0.0)
    found = [game.status for game in games]
    assert found == [GameStatus.WON, GameStatus.OUT_OF_TIME, GameStatus.WON]
    assert [len(game.turns) for game in games] == [1, 1, 1]


def test_a_game_lost_in_that_turn_is_lost_by_its_turns():  # row 37
    games = new_games(["slate", "sleep"], WORDS, Rules(max_turns=1))
    play(Guesses(), games, time_limit=0.0)
    assert [game.status for game in games] == [GameStatus.LOST, GameStatus.LOST]
