"""The fast entropy counts and the bound that saves most of them."""

import math

import numpy as np
import pytest

from wordle_rl.game.entropy import TIE, BestEntropy, LetterBound, count_codes, entropies, entropy
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.words.lists import WordLists


@pytest.fixture(scope="module")
def words(original: Knowledge) -> WordLists:
    return original.words


@pytest.fixture(scope="module")
def by_answer(original: Knowledge) -> np.ndarray:
    return np.ascontiguousarray(original.table.T)


@pytest.fixture(scope="module")
def best(words: WordLists, original: Knowledge, by_answer: np.ndarray) -> BestEntropy:
    return BestEntropy(words, original.table, by_answer)


def test_entropy_is_the_definition():
    def reference(counts: list[int]) -> float:
        shares = [count / sum(counts) for count in counts if count]
        return -sum(share * math.log2(share) for share in shares)

    rows = [[3, 0, 5, 1], [0, 0, 9, 0], [2, 2, 2, 2], [1, 700, 0, 30]]
    assert entropy(np.array(rows)).tolist() == pytest.approx([reference(row) for row in rows])
    assert entropy(np.array(rows[0])) == pytest.approx(reference(rows[0]))


@pytest.mark.parametrize("n", [2, 3, 20, 21, 600])
def test_both_ways_of_counting_and_the_best_entropy_are_the_definition(words, by_answer, best, n):
    draw = np.random.default_rng(n)
    for _ in range(3 if n < 21 else 1):
        indices = np.sort(draw.choice(len(words.answers), n, replace=False))
        bits = entropy(count_codes(by_answer[indices].T))
        assert entropies(by_answer, indices) == pytest.approx(bits, abs=1e-9)
        assert best(indices) == pytest.approx(bits.max(), abs=1e-9)
        assert best.guesses(indices).tolist() == np.flatnonzero(bits >= bits.max() - TIE).tolist()


def test_the_best_entropy_is_right_where_every_allowed_word_may_be_the_secret(words):
    subset = words.allowed[::9]
    lists = WordLists(answers=subset, allowed=subset)
    table = build_table(lists)
    assert (table != table.T).any()  # a mix-up of guess and secret would show
    best = BestEntropy(lists, table, np.ascontiguousarray(table.T))
    draw = np.random.default_rng(10)
    for n in (2, 15, 40, 300, len(subset)):
        indices = np.sort(draw.choice(len(subset), n, replace=False))
        bits = entropy(count_codes(table[:, indices]))
        assert best(indices) == pytest.approx(bits.max(), abs=1e-9)


def test_no_candidate_and_one_candidate_have_no_bits(by_answer, best):
    for indices in (np.array([], dtype=np.int64), np.array([5])):
        assert best(indices) == 0.0
        assert not entropies(by_answer, indices).any()


TWO = tuple(sorted("".join("ab"[i >> place & 1] for place in range(5)) for i in range(32)))


@pytest.mark.parametrize("lists", [None, WordLists(answers=TWO, allowed=TWO)], ids=["all", "a b"])
def test_letter_bound_is_never_below_the_entropy(original, lists):
    lists, draw = lists or original.words, np.random.default_rng(8)
    table = original.table if lists is original.words else build_table(lists)
    by_answer = np.ascontiguousarray(table.T)
    bound = LetterBound(lists)
    for n in (2, 5, 13, 32, 2315):
        indices = draw.choice(len(by_answer), min(n, len(by_answer)), replace=False)
        assert (bound(indices) >= entropies(by_answer, indices) - 1e-9).all()
