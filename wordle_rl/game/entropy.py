"""Expected information of guesses in bits: the definition, all guesses at once, and the best one.

All take the candidates as equally likely, are exact for word lists of any size, and agree up to
rounding. wordle_rl.game.knowledge asks these functions about states of games.
"""

from collections.abc import Sequence

import numpy as np

from wordle_rl.game.feedback_table import letters_of
from wordle_rl.game.rules import ALL_PLACED
from wordle_rl.words.lists import WORD_LENGTH, WordLists

CODES = ALL_PLACED + 1
TIE = 1e-9  # bits; far above rounding, far below any difference between guesses
_PAIRS_MAX = 20  # up to so many candidates, comparing all pairs is faster than counting codes
_FACTS = WORD_LENGTH + WORD_LENGTH + 1  # of a letter: its places, and its copies from 0 on
_BLOCK = 256  # guesses counted together, so that the counters stay in the processor's cache
_BATCH = 64  # guesses tried at once, highest bounds first


def entropy(counts: np.ndarray) -> np.ndarray:
    """Shannon entropy in bits of the feedback to a guess, float64 [...].

    counts: int [..., codes], how many candidates would give each feedback, 1 or more in all.
    With p = counts / n it is -sum(p log2 p), which equals log2(n) - sum(counts log2(counts)) / n.
    """
    n = counts.sum(axis=-1)
    return np.log2(n) - _count_times_log(int(counts.max()))[counts].sum(axis=-1) / n


def count_codes(codes: np.ndarray) -> np.ndarray:
    """How often each feedback code occurs in each row: uint8 [rows, n] -> int64 [rows, 243]."""
    offsets = np.arange(len(codes), dtype=np.int64)[:, None] * CODES
    counts = np.bincount((codes + offsets).ravel(), minlength=len(codes) * CODES)
    return counts.reshape(len(codes), CODES)


def _count_times_log(largest: int) -> np.ndarray:
    """c log2(c) for c = 0..largest, float64, 0 at c = 0. Looking it up is faster than log2."""
    counts = np.arange(largest + 1, dtype=np.float64)
    return counts * np.log2(np.maximum(counts, 1.0))


def entropies(by_answer: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Entropy in bits of every guess, float64 [guesses].

    by_answer: the transposed feedback table, uint8 [answers, guesses].
    candidates: indices of answers, int [n]. Zeros when n is at most 1.
    """
    n, guesses = len(candidates), by_answer.shape[1]
    if n <= 1:
        return np.zeros(guesses)
    if n <= _PAIRS_MAX:
        return np.log2(n) - _pairwise_spread(by_answer[candidates]) / n
    blocks = (by_answer[candidates, b : b + _BLOCK].T for b in range(0, guesses, _BLOCK))
    return np.concatenate([entropy(count_codes(block)) for block in blocks])


class BestEntropy:
    """The highest entropy that any guess has, and the guesses that have it.

    It computes the entropies of the few guesses that a bound does not rule out.

    table: the feedback table, uint8 [guesses, answers]. by_answer: its transposed copy. Both are
    kept, because either is several times slower than the other where it does not suit.
    """

    def __init__(self, words: WordLists, table: np.ndarray, by_answer: np.ndarray) -> None:
        self._table, self._by_answer = table, by_answer
        self._bound = LetterBound(words)

    def __call__(self, candidates: np.ndarray) -> float:
        """In bits. candidates: indices of answers, int [n]; 0 when n is at most 1."""
        n = len(candidates)
        if n <= 2:
            return float(n == 2)  # guessing one of two candidates tells them apart
        if n <= _PAIRS_MAX:
            return _best_by_pairs(self._by_answer[candidates])
        return float(self._contenders(candidates)[1].max())

    def guesses(self, candidates: np.ndarray) -> np.ndarray:
        """Indices of all guesses that have the highest entropy, int [any], ascending."""
        if len(candidates) <= _PAIRS_MAX:
            values = entropies(self._by_answer, candidates)
            return np.flatnonzero(values >= values.max() - TIE)
        guesses, bits = self._contenders(candidates)
        return np.sort(guesses[bits >= bits.max() - TIE])

    def _contenders(self, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every guess whose bound reaches the best entropy, and some more, with their entropies."""
        bounds = self._bound(candidates)
        # Usually fewer than a hundred guesses can be the best, so few that sorting them is cheap.
        guesses = np.argpartition(bounds, -min(_BATCH, len(bounds)))[-_BATCH:]
        bits = self._exact(candidates, guesses)
        bounds[guesses] = 0.0
        rivals = np.flatnonzero(bounds > bits.max() - TIE)
        rivals = rivals[np.argsort(-bounds[rivals])]
        for start in range(0, len(rivals), _BATCH):
            block = rivals[start : start + _BATCH]
            if bounds[block[0]] < bits.max() - TIE:
                break
            guesses = np.concatenate([guesses, block])
            bits = np.concatenate([bits, self._exact(candidates, block)])
        return guesses, bits

    def _exact(self, candidates: np.ndarray, guesses: np.ndarray) -> np.ndarray:
        # One index for each code is faster than two.
        places = guesses[:, None] * self._table.shape[1] + candidates
        return entropy(count_codes(self._table.take(places)))


class LetterBound:
    """An upper bound on the entropy of every guess, from counts of single letters.

    What a guess with k copies of a letter learns about it depends only on which of their places
    are right and on min(k, copies in the secret). So each letter of the guess adds two terms:
    H(copies in the secret), and the sum over its places of H(place is right | letter is present).
    The entropy is at most the sum of all terms. Where the guess has one copy of a letter, H(letter
    is present) replaces H(copies). About 2 % of all guesses have a bound above the best entropy of
    a typical state.
    """

    def __init__(self, words: WordLists) -> None:
        answers, guesses = map(_number_letters, (words.answers, words.allowed))
        places = np.arange(WORD_LENGTH)
        # Of each answer: which letter is where, and how many copies of each of its letters it has.
        copies = (answers[:, :, None] == answers[:, None, :]).sum(axis=2)
        facts = [answers * _FACTS + places, answers * _FACTS + WORD_LENGTH + copies]
        facts[1][_count_earlier(answers) > 0] = 26 * _FACTS  # said already
        self._facts = np.concatenate(facts, axis=1)
        kind = np.minimum(_count_earlier(guesses), 2)  # first, second, later copy
        self._terms = np.ascontiguousarray(((kind * 26 + guesses) * WORD_LENGTH + places).T)

    def __call__(self, candidates: np.ndarray) -> np.ndarray:
        """Bounds in bits, float64 [allowed]. candidates: indices of answers, int [n], n >= 1."""
        facts = self._facts.take(candidates, axis=0)
        counts = np.bincount(facts.ravel(), minlength=26 * _FACTS + 1)[:-1].reshape(26, _FACTS)
        counts[:, WORD_LENGTH] = len(candidates) - counts[:, WORD_LENGTH + 1 :].sum(axis=1)
        shares = counts / len(candidates)
        present = 1 - shares[:, WORD_LENGTH, None]
        elsewhere = present - shares[:, :WORD_LENGTH]
        bits = _plogp(np.concatenate([shares, elsewhere, present], axis=1))
        right, copies, elsewhere, present = np.split(bits, [WORD_LENGTH, _FACTS, -1], axis=1)
        present = present + copies[:, :1]
        first = right + elsewhere + copies[:, :1]
        later = first - present
        second = later + copies.sum(axis=1, keepdims=True) - present
        return np.stack([first, second, later]).take(self._terms).sum(axis=0)


def _number_letters(words: Sequence[str]) -> np.ndarray:
    """Letters 0..25 of words, int64 [words, 5]."""
    return letters_of(words).astype(np.int64) - ord("a")


def _count_earlier(letters: np.ndarray) -> np.ndarray:
    """How many copies of each letter [words, 5] are further left in its word."""
    same = letters[:, :, None] == letters[:, None, :]
    return np.tril(same, -1).sum(axis=2)


def _plogp(share: np.ndarray) -> np.ndarray:
    """-p log2(p), 0 where p is not above 0 (rounding can leave -1e-17)."""
    return -share * np.log2(np.where(share > 0, share, 1.0))


def _best_by_pairs(rows: np.ndarray) -> float:
    """The highest entropy of any guess: codes uint8 [n, guesses], 2 <= n < 23.

    Counts, for every guess, the pairs of candidates that share a code, which is fast. Only guesses
    whose pairs are few enough to be the best then need their exact entropy.
    """
    n = len(rows)
    pairs = np.zeros(rows.shape[1], dtype=np.uint8)
    for j in range(1, n):
        pairs += _equal_before(rows, j)
    minimum = int(pairs.min())
    if minimum == 0:
        return float(np.log2(n))
    spread = _pairwise_spread(rows[:, pairs == minimum]).min()
    # A class of c has c(c-1)/2 pairs, hence 2 log2(c) / (c-1) of spread a pair. That falls with c,
    # so no guess has less spread than its pairs times the ratio of the largest class they allow.
    count = np.arange(minimum + 1, int(pairs.max()) + 1)
    largest = np.minimum(np.floor((1 + np.sqrt(1 + 8 * count)) / 2), n)
    rivals = count[count * 2 * np.log2(largest) / (largest - 1) < spread]
    if len(rivals):
        chosen = (pairs > minimum) & (pairs <= rivals[-1])
        if chosen.any():
            spread = min(spread, _pairwise_spread(rows[:, chosen]).min())
    return float(np.log2(n) - spread / n)


def _equal_before(rows: np.ndarray, j: int) -> np.ndarray:
    """How many earlier candidates have the code of candidate j: uint8 [guesses]."""
    return np.add.reduce((rows[:j] == rows[j]).view(np.uint8), axis=0, dtype=np.uint8)


def _pairwise_spread(rows: np.ndarray) -> np.ndarray:
    """Sum of c * log2(c) over the codes of each guess, c their counts: uint8 [n, guesses], n < 257.

    A candidate that joins k others of its code adds (k+1) log2(k+1) - k log2(k).
    """
    increments = np.diff(_count_times_log(len(rows)))
    spread = np.zeros(rows.shape[1])
    for j in range(1, len(rows)):
        spread += increments[_equal_before(rows, j)]
    return spread
