"""Reward for the chance that a guess wins at once, whatever the secret is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import PlayedTurn, TurnKind


@dataclass(frozen=True, kw_only=True)
class Chance:
    """1 / (words that fit all clues) for a guess that fits them, otherwise 0.

    It is the average of a win over all words that may be the secret. So its pay does not depend on
    the secret, and playing the same secrets often does not teach which words are secrets.
    candidates: as in Value.
    """

    knowledge: Knowledge
    candidates: Literal["answers", "allowed"] = "allowed"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is None or turn.kind is not TurnKind.ACCEPTED:
            return 0.0
        whole = self.candidates == "allowed"
        knowledge = self.knowledge.over_allowed if whole else self.knowledge
        mask = knowledge.candidates(turn.state)
        place = knowledge.words.answer_index.get(turn.guess)
        return 1.0 / int(mask.sum()) if place is not None and mask[place] else 0.0
