"""A player that opens with one of the five best first guesses, then any answer that fits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import pick
from wordle_rl.game.players.random_consistent import RandomConsistent
from wordle_rl.game.rules import State

_TOP = 5


class TopOpeners:
    """Opens with one of the five allowed words of highest entropy, each equally likely.

    On the original lists they are soare, roate, raise, raile and reast. Later it guesses any answer
    that fits all clues.
    """

    name = "top openers"

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._consistent = RandomConsistent(knowledge)

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        later = self._consistent.answer(states, uniforms)
        return [
            word if state.clues else self.openers[pick(uniform, len(self.openers))]
            for state, word, uniform in zip(states, later, uniforms.tolist(), strict=True)
        ]

    @cached_property
    def openers(self) -> list[str]:
        """The best first guesses, best first; computed on first use, in about a second."""
        best = np.argsort(-self._knowledge.opener_bits, kind="stable")[:_TOP]
        return [self._knowledge.words.allowed[i] for i in best]
