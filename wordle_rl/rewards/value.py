"""Reward for the information in a guess, relative to the best guess."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import PlayedTurn, TurnKind


@dataclass(frozen=True, kw_only=True)
class Value:
    """Entropy of the guess divided by the highest entropy of any allowed guess in that state.

    Where no guess can gain information it is 1 for a candidate, else 0. A guess without feedback
    gets 0. It looks one guess ahead, so it prefers an informative guess to a likely secret; Win
    makes up for that.
    """

    knowledge: Knowledge
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is None or turn.kind is not TurnKind.ACCEPTED:
            return 0.0
        return self.knowledge.value(turn.guess, turn.state)
