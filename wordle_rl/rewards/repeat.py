"""Penalty for making the same guess twice in a game, which is also a violation, see scoring.py."""

from dataclasses import dataclass

from wordle_rl.game.rules import PlayedTurn


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """-1 when the guess already got feedback in this game, else 0."""

    range = (-1.0, 0.0)

    def __call__(self, turn: PlayedTurn) -> float:
        return -1.0 if turn.repeat else 0.0
