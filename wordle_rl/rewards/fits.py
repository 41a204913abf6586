"""Reward for a guess that fits all clues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import PlayedTurn, TurnKind


@dataclass(frozen=True, kw_only=True)
class Fits:
    """1 for a legal guess that could be the secret after all clues, otherwise 0."""

    knowledge: Knowledge
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is None or turn.kind is not TurnKind.ACCEPTED:
            return 0.0
        return float(self.knowledge.is_consistent(turn.guess, turn.state))
