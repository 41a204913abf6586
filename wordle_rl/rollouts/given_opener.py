"""An actor whose first guess in every game is given; another actor plays on from there."""

from __future__ import annotations

from collections.abc import Sequence

from wordle_rl.game.rules import PlayedTurn, State
from wordle_rl.rollouts.play import Actor, Reply


class GivenOpener:
    """Makes the first guess itself, for games from an empty board.

    The other actor takes each game over with the clue of that guess.
    """

    def __init__(self, opener: str, actor: Actor) -> None:
        self._opener, self._actor = opener, actor
        self._games = 0
        self._taken_over = False

    def start(self, states: Sequence[State]) -> list[bool]:
        self._games, self._taken_over = len(states), False
        return [True] * len(states)

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        if not self._taken_over:
            return [Reply.of_guess(self._opener)] * len(games)
        return self._actor.answer(games, states, turn)

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        if self._taken_over:
            return self._actor.hear(games, turns, states)
        if not games:  # the opener ended all of them
            return []
        # Every game keeps its number, so the actor also gets the games that are over.
        everywhere = [states[0]] * self._games
        for game, state in zip(games, states, strict=True):
            everywhere[game] = state
        begun = self._actor.start(everywhere)
        self._taken_over = True
        self._actor.leave([game for game in range(self._games) if game not in set(games)])
        return [begun[game] for game in games]

    def leave(self, games: Sequence[int]) -> None:
        if self._taken_over:
            self._actor.leave(games)
