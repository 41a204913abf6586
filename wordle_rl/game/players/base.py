"""Scripted players: floors, ceilings and teachers that need no model.

A player answers states with text, like a policy does, and draws all its randomness from the given
uniforms: the same state and uniform always get the same answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game.rules import State


class Player(Protocol):
    """Something that plays many games side by side."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        """One answer text per state, such as <guess>crane</guess>.

        uniforms: float64 [states] in [0, 1), the only randomness.
        """
        ...


@runtime_checkable
class Teacher(Player, Protocol):
    """A scripted player whose guess is drawn uniformly from some of its words."""

    @property
    def pool(self) -> Sequence[str]:
        """All words it may ever guess."""
        ...

    def choices(self, state: State) -> NDArray[np.intp]:
        """Which words of the pool it draws from in this state, each equally likely."""
        ...


def guess_text(guess: str) -> str:
    """The answer that makes a guess."""
    return f"<guess>{guess}</guess>"


def pick(uniform: float, count: int) -> int:
    """A whole number 0..count-1 from a uniform in [0, 1), each equally likely."""
    return min(int(uniform * count), count - 1)


def generator(uniform: float) -> random.Random:
    """A source of as many random choices as a player needs, from a uniform in [0, 1)."""
    return random.Random(int(uniform * 2**53))  # doubles in [0, 1) are no finer than that
