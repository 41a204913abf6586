"""What can be said of one turn by computing alone: the words left, and what a guess would tell."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import GreedyEntropy
from wordle_rl.game.rules import State

_SHOWN = 12  # candidates that are listed


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnFacts:
    """A board before a guess, and the guess."""

    candidates: int  # answers that fit all clues
    some: tuple[str, ...]  # the first of them in the alphabet
    best: str | None  # a guess of the most bits, a candidate if there is one; None without any
    best_bits: float  # of `best`
    bits: float | None  # of the guess, expected over the candidates; None without a guess
    fits: bool | None  # whether the guess fits all clues; None without a guess


class TurnJudge:
    """Says the facts of turns. The best guess of a board is computed once."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._solver = GreedyEntropy(knowledge, opener=None)

    def judge(self, state: State, guess: str | None) -> TurnFacts:
        """The facts of a guess, which is five letters, in a state; of the state alone for None."""
        knowledge = self._knowledge
        mask = knowledge.candidates(state)
        left = int(mask.sum())
        words = knowledge.words.answers
        return TurnFacts(
            candidates=left,
            some=tuple(words[i] for i in mask.nonzero()[0][:_SHOWN]),
            best=self._solver.choose(state) if left else None,
            best_bits=knowledge.best_entropy(state),
            bits=None if guess is None else knowledge.entropy(guess, mask),
            fits=None if guess is None else knowledge.is_consistent(guess, state),
        )
