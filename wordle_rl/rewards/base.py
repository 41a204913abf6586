"""What every reward is, a callable on one finished turn, and which turns are violations."""

from __future__ import annotations

from typing import Protocol

from wordle_rl.game.rules import PlayedTurn, TurnKind


class Reward(Protocol):
    """Judges one turn by the turn alone: its state holds all earlier clues of the game.

    A frozen keyword-only dataclass of settings. A field called words (WordLists) or knowledge
    (Knowledge) is filled in when the set is built, every other field comes from YAML.
    """

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest value, unweighted; a class attribute will do.

        The least is what a violation gets. Any value outside stops the run.
        """
        ...

    def __call__(self, turn: PlayedTurn) -> float:
        """The unweighted reward of a turn; must also answer for turns that were not accepted."""
        ...


def is_violation(turn: PlayedTurn) -> bool:
    """Whether a turn got no feedback (no guess, no word, breaks hard mode) or repeats a guess."""
    return turn.kind is not TurnKind.ACCEPTED or turn.repeat
