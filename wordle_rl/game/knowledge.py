"""What the clues of a game say: which secrets remain, what a guess would tell, what it ignores.

A candidate is a possible secret that fits every clue. Entropies take all candidates as equally
likely and look one guess ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from wordle_rl.game.entropy import TIE, BestEntropy, count_codes, entropies, entropy
from wordle_rl.game.feedback_table import feedback_row, feedback_table, letters_of
from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.words.lists import WordLists

# So many states are remembered: masks of 2.3 kB and of 13 kB for the original lists, numbers.
_MASKS_KEPT, _ALLOWED_KEPT, _BESTS_KEPT = 4_096, 512, 4_096


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenClues:
    """How many letters of a guess ignore what is known; all 0 exactly when the guess fits."""

    placed: int = 0  # known places that have another letter
    known: int = 0  # missing copies of letters that are known but not placed
    absent: int = 0  # copies of a letter beyond the most that the secret can have
    wrong_place: int = 0  # letters put where a clue says that they are not

    @property
    def total(self) -> int:
        return self.placed + self.known + self.absent + self.wrong_place


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterFacts:
    """The clues, letter by letter; places are 0..4."""

    placed: dict[int, str]  # place -> its letter
    excluded: dict[int, frozenset[str]]  # place -> letters of the secret that are not there
    at_least: dict[str, int]  # letter -> fewest copies that the secret can have, 1 or more
    at_most: dict[str, int]  # letter -> most copies that it can have; 0 for an absent letter

    @property
    def barred(self) -> dict[str, list[int]]:
        """Letters of the secret, each with the places 1..5 where it is not."""
        places: dict[str, list[int]] = {}
        for place, letters in self.excluded.items():
            for letter in sorted(letters):
                places.setdefault(letter, []).append(place + 1)
        return places

    @property
    def absent(self) -> list[str]:
        """Letters that the secret does not have, as they were found."""
        return [letter for letter, most in self.at_most.items() if most == 0]


def letter_facts(clues: Sequence[Clue]) -> LetterFacts:
    """Summarise what clues say about each letter, repeated letters included."""
    placed: dict[int, str] = {}
    excluded: dict[int, set[str]] = {}
    at_least: dict[str, int] = {}
    at_most: dict[str, int] = {}
    for clue in clues:
        pairs = list(zip(clue.guess, clue.marks, strict=True))
        counts = Counter(letter for letter, mark in pairs if mark != "x")
        for place, (letter, mark) in enumerate(pairs):
            if mark == "✓":
                placed[place] = letter
            elif counts[letter]:
                excluded.setdefault(place, set()).add(letter)
            if mark == "x":
                at_most[letter] = counts[letter]
        for letter, copies in counts.items():
            at_least[letter] = max(copies, at_least.get(letter, 0))
    return LetterFacts(
        placed=placed,
        excluded={place: frozenset(letters) for place, letters in sorted(excluded.items())},
        at_least=at_least,
        at_most=at_most,
    )


def broken_clues(guess: str, facts: LetterFacts) -> BrokenClues:
    """Count how a guess ignores what is known, by kind; a letter counts under at most one kind."""
    counts = Counter(guess)
    misses = sum(guess[place] != letter for place, letter in facts.placed.items())
    placed = Counter(facts.placed.values())
    hits = Counter(letter for place, letter in facts.placed.items() if guess[place] == letter)
    return BrokenClues(
        placed=misses,
        known=sum(
            max(0, copies - placed[letter] - (counts[letter] - hits[letter]))
            for letter, copies in facts.at_least.items()
        ),
        absent=sum(max(0, counts[letter] - most) for letter, most in facts.at_most.items()),
        wrong_place=sum(guess[place] in letters for place, letters in facts.excluded.items()),
    )


class Knowledge:
    """Answers questions about states of games on one pair of word lists.

    words, table: the lists and their feedback codes uint8 [allowed, answers] (feedback_table).
    Masks are bool [answers]; returned masks are shared and read-only.
    """

    def __init__(self, words: WordLists, table: np.ndarray) -> None:
        self.words = words
        self.table = table
        self._by_answer = np.ascontiguousarray(table.T)
        self._best_entropy = BestEntropy(words, table, self._by_answer)
        self._letters = letters_of(words.answers)
        self._mask = lru_cache(maxsize=_MASKS_KEPT)(self._compute_mask)
        self._allowed_letters = letters_of(words.allowed)
        self._allowed_mask = lru_cache(maxsize=_ALLOWED_KEPT)(self._compute_allowed_mask)
        self._best = lru_cache(maxsize=_BESTS_KEPT)(self._compute_best)

    @cached_property
    def over_allowed(self) -> Knowledge:
        """Knowledge of a game in which every allowed word is a possible secret, equally likely.

        It does not depend on the answers. It is computed at the first use: 2 x 168 MB for the
        original lists.
        """
        words = self.words.over_allowed
        return self if words is self.words else Knowledge(words, feedback_table(words))

    def candidates(self, state: State) -> np.ndarray:
        """Answers that fit all clues, bool [answers]; guesses need not be allowed words."""
        return self._mask(state.clues)

    def consistent_allowed(self, state: State) -> np.ndarray:
        """Allowed guesses that fit all clues, possible secrets or not, bool [allowed]."""
        return self._allowed_mask(state.clues)

    def candidate_words(self, state: State) -> list[str]:
        """The candidates as words, in alphabetical order."""
        return [self.words.answers[i] for i in np.flatnonzero(self.candidates(state))]

    def feedback(self, guess: str) -> np.ndarray:
        """Feedback codes of any five letters against every answer, uint8 [answers]."""
        row = self.words.guess_index.get(guess)
        return feedback_row(guess, self._letters) if row is None else self.table[row]

    def entropy(self, guess: str, mask: np.ndarray) -> float:
        """Expected information of a guess in bits, 0 when at most one candidate is left."""
        counts = self._counts(guess, mask)
        return float(entropy(counts)) if counts.any() else 0.0

    def entropies(self, mask: np.ndarray) -> np.ndarray:
        """The entropy of every allowed guess in bits, float64 [allowed]."""
        return entropies(self._by_answer, np.flatnonzero(mask))

    @cached_property
    def opener_bits(self) -> np.ndarray:
        """The entropy of every allowed word as a first guess, in bits, float64 [allowed]."""
        return self.entropies(self.candidates(State()))

    @cached_property
    def opener_ranks(self) -> np.ndarray:
        """The rank, 1 the best, of every allowed word by opener_bits, int [allowed]."""
        return np.searchsorted(np.sort(-self.opener_bits), -self.opener_bits - TIE) + 1

    def best_entropy(self, state: State) -> float:
        """The highest entropy in bits that any allowed guess has in a state."""
        return self._best(np.packbits(self.candidates(state)).tobytes())

    def best_guesses(self, mask: np.ndarray) -> np.ndarray:
        """Indices of all allowed guesses of the highest entropy, in alphabetical order."""
        return self._best_entropy.guesses(np.flatnonzero(mask))

    def value(self, guess: str, state: State) -> float:
        """entropy / best_entropy of any five letters, in [0, 1].

        Where no guess can gain information it is 1 for a candidate, else 0.
        """
        mask, best = self.candidates(state), self.best_entropy(state)
        if best <= 0.0:
            place = self.words.answer_index.get(guess)
            return float(place is not None and bool(mask[place]))
        return min(1.0, max(0.0, self.entropy(guess, mask) / best))

    def outlook(self, guess: str, mask: np.ndarray) -> tuple[float, float]:
        """The entropy of a guess, and the mean number of candidates left after its feedback."""
        counts = self._counts(guess, mask)
        counts = counts[counts > 0]
        mean = np.square(counts).sum() / counts.sum() if len(counts) else 0.0
        return float(entropy(counts)) if len(counts) else 0.0, float(mean)

    def is_consistent(self, guess: str, state: State) -> bool:
        """Whether any five letters, a word or not, could be the secret after all clues."""
        return all(feedback_code(clue.guess, guess) == clue.feedback for clue in state.clues)

    def spoiling_letter(self, guess: str, state: State, most: int | None = None) -> int | None:
        """Place 0..4 at which a guess leaves every allowed word that fits all clues.

        None for an allowed guess that fits, and where no allowed word fits at all. While more than
        `most` words fit, every allowed guess does.
        """
        words = self._allowed_letters[self.consistent_allowed(state)]
        if most is not None and len(words) > most:
            words = self._allowed_letters
        if not len(words):
            return None
        for place, letter in enumerate(guess.encode()):
            words = words[words[:, place] == letter]
            if not len(words):
                return place
        return None

    def _counts(self, guess: str, mask: np.ndarray) -> np.ndarray:
        """How many candidates would give each feedback to a guess, int64 [243]."""
        return count_codes(self.feedback(guess)[mask][None])[0]

    def _compute_mask(self, clues: tuple[Clue, ...]) -> np.ndarray:
        mask = np.ones(len(self.words.answers), dtype=bool)
        if clues:
            last = clues[-1]
            mask = self._mask(clues[:-1]) & (self.feedback(last.guess) == last.feedback)
        mask.flags.writeable = False
        return mask

    def _compute_allowed_mask(self, clues: tuple[Clue, ...]) -> np.ndarray:
        mask = np.full(len(self.words.allowed), not clues)
        if clues:
            indices = np.flatnonzero(self._allowed_mask(clues[:-1]))
            row = feedback_row(clues[-1].guess, self._allowed_letters.take(indices, axis=0))
            mask[indices[row == clues[-1].feedback]] = True
        mask.flags.writeable = False
        return mask

    def _compute_best(self, bits: bytes) -> float:
        mask = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=len(self.words.answers))
        return self._best_entropy(np.flatnonzero(mask))
