"""Reward for a guess that could be the secret, as far as the clues of the game tell."""

from dataclasses import dataclass

from wordle_rl.game.knowledge import broken_clues, letter_facts
from wordle_rl.game.rules import PlayedTurn


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """1 when the guess fits every earlier clue of the game, else 0.

    A guess without feedback gets 0, and so does a repeat: it cannot be the secret.
    """

    range = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is None or turn.feedback is None:
            return 0.0
        return float(broken_clues(turn.guess, letter_facts(turn.state.clues)).total == 0)
