"""Scripted players: floors, ceilings and teachers that need no model.

A player draws all its randomness from the given uniforms, so the same state and uniform always get
the same answer.
"""

import dataclasses
import random
import string
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import State
from wordle_rl.words.lists import WORD_LENGTH, WordLists

Pool = Literal["answers", "allowed"]

MEANINGS = {  # of the players, which have one name as an option, in tables and on pages
    "entropy": "knows the answers",
    "entropy_allowed": "any word may be the secret",
    "entropy_consistent": "entropy's guess, then answers that fit",
    "random_consistent": "answers that fit all clues",
    "random_consistent_allowed": "words that fit all clues",
    "random": "any allowed word",
}


def title(name: str) -> str:
    """A player's name with what it means."""
    return f"{name} ({MEANINGS[name]})"


def guess_text(guess: str) -> str:
    """The answer that makes a guess, e.g. <guess>crane</guess>."""
    return f"<guess>{guess}</guess>"


def pick(uniform: float, count: int) -> int:
    """A whole number 0..count-1 from a uniform in [0, 1), each equally likely."""
    return min(int(uniform * count), count - 1)


def generator(uniform: float) -> random.Random:
    """A source of as many random choices as a player needs, from a uniform in [0, 1)."""
    return random.Random(int(uniform * 2**53))  # doubles in [0, 1) are no finer than that


class Player(ABC):
    """Guesses words in many games side by side."""

    name: str  # in reports

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        """One guess per state: five lower-case letters, a word or not.

        uniforms: float64 [states] in [0, 1), the only randomness.
        """
        pairs = zip(states, uniforms.tolist(), strict=True)
        return [self.choose(state, uniform) for state, uniform in pairs]

    @abstractmethod
    def choose(self, state: State, uniform: float = 0.0) -> str:
        """The same for one state."""


class Teacher(Player):
    """A player that guesses one of several words, each equally likely."""

    pool: Sequence[str]  # all words it may ever guess

    @abstractmethod
    def choices(self, state: State) -> NDArray[np.intp]:
        """Indices into the pool of the words it may guess in this state."""

    def choose(self, state: State, uniform: float = 0.0) -> str:
        choices = self.choices(state)
        return self.pool[int(choices[pick(uniform, len(choices))])]


class RandomWord(Teacher):
    """Guesses any allowed word regardless of the clues: the floor of legal play."""

    name = "random"

    def __init__(self, words: WordLists) -> None:
        self.pool = words.allowed
        self._all = np.arange(len(self.pool))

    def choices(self, state: State) -> NDArray[np.intp]:
        return self._all


class RandomConsistent(Teacher):
    """Guesses any word of its pool that fits all clues, or any of them if none does.

    pool: "answers" guesses possible secrets, "allowed" any legal word. On the original lists they
    win 97.9 % of games in 4.04 turns on average, and 89.7 % in 4.57.
    """

    def __init__(self, knowledge: Knowledge, pool: Pool = "answers") -> None:
        self.name = "random_consistent" if pool == "answers" else "random_consistent_allowed"
        words = knowledge.words
        self.pool = words.answers if pool == "answers" else words.allowed
        self._mask = knowledge.candidates if pool == "answers" else knowledge.consistent_allowed

    def choices(self, state: State) -> NDArray[np.intp]:
        indices = self._mask(state).nonzero()[0]
        return indices if len(indices) else np.arange(len(self.pool))


class Decoder(Teacher):
    """Guesses any word that a model's grammar leaves it: the decoder without the model.

    clues: words that fit all clues, while there are at most `most` (None is no limit) and at least
    one; otherwise any allowed word. repeats: False takes out the words that were guessed, unless
    no other is left.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        clues: bool = False,
        most: int | None = None,
        repeats: bool = True,
    ) -> None:
        self.pool, self.words = knowledge.words.allowed, knowledge.words.allowed_set
        self._knowledge, self._all = knowledge, np.arange(len(self.pool))
        self._most = 0
        if clues:
            self._most = len(self.pool) if most is None else most
        self._repeats = repeats
        # As of the players that choose from the same words.
        self.name = "random_consistent_allowed" if clues else RandomWord.name
        self.name += "" if not clues or most is None else f" from {most}"
        self.name += "" if repeats or (clues and most is None) else ", none twice"

    def choices(self, state: State) -> NDArray[np.intp]:
        if self._most:
            indices = self._knowledge.consistent_allowed(state).nonzero()[0]
            if 0 < len(indices) <= self._most:  # no word fits all clues and was guessed
                return indices
        if self._repeats or not state.clues:
            return self._all
        index = self._knowledge.words.guess_index
        rest = np.delete(self._all, [index[word] for word in state.guesses if word in index])
        return rest if len(rest) else self._all


class Mistakes(Player):
    """Errs as a learner does, so that a teacher can show how to recover.

    Its guesses are non-words (30 %), words regardless of the clues (20 %), and words that ignore
    one or two clues (50 %). On the empty board, which has no clues to ignore, all are non-words.
    pool: the words that it knows, possible secrets ("answers") or all legal words ("allowed").
    """

    name = "mistakes"

    def __init__(self, knowledge: Knowledge, pool: Pool = "answers") -> None:
        self._words = knowledge.words
        self._player = RandomConsistent(knowledge, pool)

    def choose(self, state: State, uniform: float = 0.0) -> str:
        draw = generator(uniform)
        kind = draw.random()
        if kind < 0.3 or not state.clues:
            return self._non_word(state, draw)
        if kind < 0.5:
            return draw.choice(self._player.pool)
        clues = list(state.clues)
        for _ in range(min(draw.choice([1, 1, 2]), len(clues))):
            clues.pop(draw.randrange(len(clues)))
        new_state = dataclasses.replace(state, clues=tuple(clues))
        return self._player.choose(new_state, draw.random())

    def _non_word(self, state: State, draw: random.Random) -> str:
        """A fitting word with one letter replaced; the word itself when 20 tries make words."""
        word = self._player.choose(state, draw.random())
        for _ in range(20):
            place, letter = draw.randrange(WORD_LENGTH), draw.choice(string.ascii_lowercase)
            guess = word[:place] + letter + word[place + 1 :]
            if guess not in self._words.allowed_set:
                return guess
        return word


class Opening(Player):
    """Begins every game with the same word, and guesses as another player after it."""

    def __init__(self, word: str, player: Player) -> None:
        self.name, self._word, self._player = f"{word}, then {player.name}", word, player

    def choose(self, state: State, uniform: float = 0.0) -> str:
        return self._player.choose(state, uniform) if state.clues else self._word


class GreedyEntropy(Player):
    """Makes the guess of highest entropy, candidates first, then in alphabetical order.

    A strong ceiling, not the optimum. It uses no randomness.
    opener: the first guess of every game; None computes the best one. candidates: which words it
    takes for possible secrets, equally likely. With "allowed" it does not know the answers.

    On the original lists it never loses. With SALET it needs 3.432 turns on average. Over allowed
    words it opens with TARES and needs 3.965.
    """

    def __init__(
        self, knowledge: Knowledge, opener: str | None = "salet", candidates: Pool = "answers"
    ) -> None:
        if opener is not None and opener not in knowledge.words.allowed_set:
            raise ValueError(f"opener must be one of the allowed words, not {opener!r}")
        self.name = "entropy" if candidates == "answers" else "entropy_allowed"
        self._source, self._candidates, self._opener = knowledge, candidates, opener
        self._cache: dict[bytes, str] = {}

    def choose(self, state: State, uniform: float = 0.0) -> str:
        """The guess for a state; the first allowed word when no candidate is left."""
        if not state.clues and self._opener is not None:
            return self._opener
        # Knowledge over allowed words takes seconds to compute, so it waits for the first game.
        knowledge = self._source.over_allowed if self._candidates == "allowed" else self._source
        mask = knowledge.candidates(state)
        key = np.packbits(mask).tobytes()
        if key not in self._cache:
            self._cache[key] = self._best(knowledge, mask)
        return self._cache[key]

    def _best(self, knowledge: Knowledge, mask: np.ndarray) -> str:
        words, indices = knowledge.words, np.flatnonzero(mask)
        if 1 <= len(indices) <= 2:
            return words.answers[indices[0]]  # a candidate splits two of them
        best = [words.allowed[i] for i in knowledge.best_guesses(mask)]
        candidates = {words.answers[i] for i in indices}
        return next((word for word in best if word in candidates), best[0])


class EntropyConsistent(Teacher):
    """Guesses as `informed` while more than `most` answers fit, then any that fits all clues.

    Its later guesses are as easy to learn as those of RandomConsistent. With most=20 it wins 99.2 %
    of games on the original lists, in 3.58 turns on average.
    """

    name = "entropy_consistent"

    def __init__(self, knowledge: Knowledge, informed: Player, most: int = 20) -> None:
        self._informed, self._most, self._mask = informed, most, knowledge.candidates
        self._index, self.pool = knowledge.words.guess_index, knowledge.words.allowed
        self._answers = np.array([self._index[word] for word in knowledge.words.answers])

    def choices(self, state: State) -> NDArray[np.intp]:
        indices = self._answers[self._mask(state)]
        if state.clues and len(indices) <= self._most:
            return indices if len(indices) else self._answers
        return np.array([self._index[self._informed.choose(state)]])
