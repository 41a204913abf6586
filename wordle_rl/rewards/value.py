"""Reward for the information in a guess, relative to the best guess."""

from dataclasses import dataclass
from typing import Literal

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import PlayedTurn, TurnKind


@dataclass(frozen=True, kw_only=True)
class Value:
    """Entropy of the guess divided by the highest entropy of any allowed guess in that state.

    Where no guess can gain information it is 1 for a candidate, else 0. A guess without feedback
    gets 0. It looks one guess ahead, so it prefers an informative guess to a likely secret; Win
    makes up for that.

    candidates: the words that count as possible secrets, equally likely. With "allowed" the reward
    does not depend on the list of answers, so it cannot teach which words are held out.
    """

    knowledge: Knowledge
    candidates: Literal["answers", "allowed"] = "answers"
    range = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is None or turn.kind is not TurnKind.ACCEPTED:
            return 0.0
        # The table of all allowed words is built here, so that only runs that need it do.
        whole = self.candidates == "allowed"
        knowledge = self.knowledge.over_allowed if whole else self.knowledge
        return knowledge.value(turn.guess, turn.state)
