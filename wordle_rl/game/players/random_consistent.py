"""A player that guesses any word that fits all clues; the teacher of warm starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import pick
from wordle_rl.game.rules import State


class RandomConsistent:
    """Picks uniformly among the words of its pool that fit, or from the whole pool if none does.

    pool: "answers" guesses possible secrets, "allowed" any legal word. On the original lists they
    win 97.9 % of games in 4.04 turns on average, and 89.7 % in 4.57.
    """

    def __init__(
        self, knowledge: Knowledge, pool: Literal["answers", "allowed"] = "answers"
    ) -> None:
        if pool not in ("answers", "allowed"):
            raise ValueError(f"pool must be answers or allowed, not {pool!r}")
        self.name = f"consistent ({pool})"
        words = knowledge.words
        self.pool = words.answers if pool == "answers" else words.allowed
        self._mask = knowledge.candidates if pool == "answers" else knowledge.consistent_allowed

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        return [
            self._choose(state, uniform)
            for state, uniform in zip(states, uniforms.tolist(), strict=True)
        ]

    def _choose(self, state: State, uniform: float) -> str:
        choices = self.choices(state)
        return self.pool[choices[pick(uniform, len(choices))]]

    def choices(self, state: State) -> NDArray[np.intp]:
        """Indices into the pool of the words it may guess, each equally likely."""
        fitting = self._mask(state).nonzero()[0]
        return fitting if len(fitting) else np.arange(len(self.pool))
