"""A player that errs as a learner does, so that a teacher can show how to recover.

It makes three kinds of mistakes: a non-word, any word regardless of the clues, and a word that
ignores one or two clues.
"""

from __future__ import annotations

import dataclasses
import random
import string
from collections.abc import Sequence
from typing import Literal

import numpy as np

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import generator, pick
from wordle_rl.game.players.random_consistent import RandomConsistent
from wordle_rl.game.rules import State
from wordle_rl.words.lists import WORD_LENGTH


class Mistakes:
    """Non-words (30 %), words regardless of the clues (20 %), and words that ignore some (50 %).

    On the empty board, which has no clues to ignore, all are non-words.
    pool: the words that it knows, possible secrets ("answers") or all legal words ("allowed").
    """

    name = "mistakes"

    def __init__(
        self, knowledge: Knowledge, pool: Literal["answers", "allowed"] = "answers"
    ) -> None:
        self._words = knowledge.words
        self._consistent = RandomConsistent(knowledge, pool)

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        return [
            self._mistake(state, generator(uniform))
            for state, uniform in zip(states, uniforms.tolist(), strict=True)
        ]

    def _mistake(self, state: State, draw: random.Random) -> str:
        kind = draw.random()
        if kind < 0.3 or not state.clues:
            return self._non_word(state, draw)
        if kind < 0.5:
            return draw.choice(self._consistent.pool)
        clues = list(state.clues)
        for _ in range(min(draw.choice([1, 1, 2]), len(clues))):
            clues.pop(draw.randrange(len(clues)))
        return self._fitting(dataclasses.replace(state, clues=tuple(clues)), draw)

    def _non_word(self, state: State, draw: random.Random) -> str:
        """A fitting word with one letter replaced; the word itself when 20 tries make words."""
        word = self._fitting(state, draw)
        for _ in range(20):
            place, letter = draw.randrange(WORD_LENGTH), draw.choice(string.ascii_lowercase)
            changed = word[:place] + letter + word[place + 1 :]
            if changed not in self._words.allowed_set:
                return changed
        return word

    def _fitting(self, state: State, draw: random.Random) -> str:
        choices = self._consistent.choices(state)
        return self._consistent.pool[choices[pick(draw.random(), len(choices))]]
