"""What scripted players are: floors, ceilings and teachers that need no model.

A Player answers with words. A Speaker answers with text, as a policy does, because it tests how
text is read. Both draw all their randomness from the given uniforms: the same state and uniform
always get the same answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game.rules import State


class Player(Protocol):
    """Guesses words in many games side by side."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        ...

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        """One guess per state: five lower-case letters, a word or not.

        uniforms: float64 [states] in [0, 1), the only randomness.
        """
        ...


@runtime_checkable
class Speaker(Protocol):
    """Answers in many games side by side with text that may hold no guess."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        ...

    def speak(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        """One answer per state, as a model might write it. uniforms: as in Player.answer."""
        ...


@runtime_checkable
class Teacher(Player, Protocol):
    """A player that guesses one of several words, each equally likely."""

    @property
    def pool(self) -> Sequence[str]:
        """All words it may ever guess."""
        ...

    def choices(self, state: State) -> NDArray[np.intp]:
        """Indices into the pool of the words it may guess in this state."""
        ...


def guess_text(guess: str) -> str:
    """The answer that makes a guess, e.g. <guess>crane</guess>."""
    return f"<guess>{guess}</guess>"


def spelled_text(guess: str) -> str:
    """The answer that makes a guess with its letters apart, e.g. <guess> C R A N E</guess>."""
    return guess_text("".join(f" {letter}" for letter in guess.upper()))


def pick(uniform: float, count: int) -> int:
    """A whole number 0..count-1 from a uniform in [0, 1), each equally likely."""
    return min(int(uniform * count), count - 1)


def generator(uniform: float) -> random.Random:
    """A source of as many random choices as a player needs, from a uniform in [0, 1)."""
    return random.Random(int(uniform * 2**53))  # doubles in [0, 1) are no finer than that
