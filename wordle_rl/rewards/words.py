"""Rewards for single guesses that need no secret: an allowed word, one that fits, and its marks.

They suit play without a grammar, where a model has to learn which words exist and what the clues
leave, and where most guesses win nothing.
"""

from dataclasses import dataclass

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import PlayedTurn, marks_of

GREEN, YELLOW = 0.2, 0.1  # so that five letters in place are worth 1


@dataclass(frozen=True, kw_only=True)
class NewWord:
    """1 for an accepted guess that was not made before in the game, else 0."""

    range = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        return float(not turn.violation)


@dataclass(frozen=True, kw_only=True)
class Fits:
    """1 for an accepted guess that could be the secret after all clues of the game, else 0.

    A guess that repeats an earlier one never fits, because its feedback says that it is not the
    secret.
    """

    knowledge: Knowledge
    range = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        fits = turn.feedback is not None and turn.guess is not None
        return float(fits and self.knowledge.is_consistent(turn.guess or "", turn.state))


@dataclass(frozen=True, kw_only=True)
class Marks:
    """0.2 for each letter in place and 0.1 for each letter elsewhere, 0 without feedback.

    Source: what open-instruct's Wordle pays for the last valid guess of a lost game. Here every
    guess earns it, so that it can be compared with other guesses in the same state.
    """

    range = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.feedback is None:
            return 0.0
        marks = marks_of(turn.feedback)
        return GREEN * marks.count("✓") + YELLOW * marks.count("-")
