"""A player that guesses any allowed word regardless of the clues: the floor of legal play."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wordle_rl.game.players.base import pick
from wordle_rl.game.rules import State
from wordle_rl.words.lists import WordLists


class RandomWord:
    """Picks uniformly among the allowed words."""

    name = "random word"

    def __init__(self, words: WordLists) -> None:
        self._words = words.allowed

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        count = len(self._words)
        return [self._words[pick(u, count)] for _, u in zip(states, uniforms.tolist(), strict=True)]
