"""The interface of a reward, a callable on one finished turn; and which turns are violations."""

from __future__ import annotations

from typing import Protocol

from wordle_rl.game.rules import PlayedTurn, TurnKind


class Reward(Protocol):
    """Rewards one turn. Its state holds all earlier clues of the game, and nothing else is needed.

    A frozen keyword-only dataclass of settings. Fields called words (WordLists) and knowledge
    (Knowledge) are filled in when the set is built; all other fields come from YAML.
    """

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest value, unweighted; a class attribute will do.

        A violation gets the least value. A value outside the range stops the run.
        """
        ...

    def __call__(self, turn: PlayedTurn) -> float:
        """The unweighted reward of any turn, also of one that was not accepted."""
        ...


def is_violation(turn: PlayedTurn) -> bool:
    """Whether a turn got no feedback (no guess, non-word, breaks hard mode) or repeats a guess."""
    return turn.kind is not TurnKind.ACCEPTED or turn.repeat
