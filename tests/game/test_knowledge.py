"""Knowledge: candidates, entropies and broken clues against slow definitions."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import BrokenClues, Knowledge, broken_clues, letter_facts
from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.words.lists import WordLists, load_words


@pytest.fixture(scope="module")
def small() -> Knowledge:
    words = load_words()
    lists = WordLists(answers=words.answers[::30], allowed=words.answers[::10])
    return Knowledge(lists, build_table(lists))


def state_after(secret: str, *guesses: str) -> State:
    clues = tuple(Clue(guess, feedback_code(guess, secret)) for guess in guesses)
    return State(clues, len(clues))


def fits(word: str, state: State) -> bool:
    return all(feedback_code(clue.guess, word) == clue.feedback for clue in state.clues)


def slow_candidates(knowledge: Knowledge, state: State) -> list[str]:
    return [word for word in knowledge.words.answers if fits(word, state)]


def slow_bits(guess: str, candidates: list[str]) -> float:
    counts = Counter(feedback_code(guess, word) for word in candidates)
    return -sum(c / len(candidates) * math.log2(c / len(candidates)) for c in counts.values())


def random_states(knowledge: Knowledge, count: int, seed: int) -> list[State]:
    """States after 0 to 3 random guesses that all fit the clues before them."""
    draw = np.random.default_rng(seed)
    states = []
    for i in range(count):
        secret = str(draw.choice(knowledge.words.answers))
        state = State()
        for _ in range(i % 4):
            guess = str(draw.choice(slow_candidates(knowledge, state)))
            state = state_after(secret, *state.guesses, guess)
        states.append(state)
    return states


def test_candidates_and_entropies_are_those_of_the_slow_definitions(small):
    for state in random_states(small, 12, seed=4):
        words, mask = slow_candidates(small, state), small.candidates(state)
        assert small.candidate_words(state) == words
        flags = [fits(word, state) for word in small.words.allowed]
        assert small.consistent_allowed(state).tolist() == flags
        expected = [slow_bits(guess, words) for guess in small.words.allowed]
        assert small.entropies(mask) == pytest.approx(expected, abs=1e-12)
        assert small.best_entropy(state) == pytest.approx(max(expected), abs=1e-12)
        for guess in (small.words.allowed[3], "eerie", "qqqqq"):
            assert small.entropy(guess, mask) == pytest.approx(slow_bits(guess, words), abs=1e-12)


def test_best_entropy_where_no_guess_tells_all_candidates_apart():
    # one letter differs, and no guess holds more than one of these letters: 4 splits off one
    answers = tuple(f"{first}ills" for first in "bdfghjkmpt")
    words = WordLists(answers=answers, allowed=answers)
    knowledge = Knowledge(words, build_table(words))
    expected = max(slow_bits(guess, list(answers)) for guess in answers)
    assert 0 < expected < math.log2(len(answers))
    assert knowledge.best_entropy(State()) == pytest.approx(expected, abs=1e-12)


def test_nothing_can_be_gained_once_one_candidate_is_left_or_none(original):
    state = state_after("crane", "crane")
    assert original.candidate_words(state) == ["crane"]
    assert original.best_entropy(state) == 0.0
    assert original.entropy("slate", original.candidates(state)) == 0.0
    assert original.value("crane", state) == 1.0
    assert original.value("slate", state) == 0.0
    dead_end = State((Clue("zzzzz", 242),), 1)
    assert original.candidate_words(dead_end) == []
    assert original.best_entropy(dead_end) == original.value("abbey", dead_end) == 0.0
    assert original.outlook("abbey", original.candidates(dead_end)) == (0.0, 0.0)


def test_values_and_words_left_are_the_published_ones(original):
    # for these lists: RAISE 5.878 bits, SOARE 5.886 bits; ROATE leaves 60.42 words, RAISE 61.00
    assert original.value("soare", State()) == pytest.approx(1.0, abs=1e-9)
    assert original.value("raise", State()) == pytest.approx(5.878 / 5.886, abs=2e-4)
    mask = original.candidates(State())
    assert original.outlook("roate", mask)[1] == pytest.approx(60.42, abs=0.01)
    assert original.outlook("raise", mask)[1] == pytest.approx(61.00, abs=0.01)


@pytest.mark.parametrize(
    ("guess", "broken"),
    [  # after SLEEP against CREPT: E third, P not last, one E, no S, no L
        ("crept", BrokenClues()),
        ("crimp", BrokenClues(placed=1, wrong_place=1)),
        ("greek", BrokenClues(known=1, absent=1, wrong_place=1)),
        ("sheet", BrokenClues(known=1, absent=2, wrong_place=1)),
        ("lasso", BrokenClues(placed=1, known=1, absent=3)),
        ("pixel", BrokenClues(placed=1, absent=1, wrong_place=1)),
    ],
)
def test_broken_clues_are_counted_by_kind(guess, broken):
    assert broken_clues(guess, letter_facts(state_after("crept", "sleep").clues)) == broken


def test_guess_breaks_no_clue_exactly_when_it_is_consistent(original):
    draw = np.random.default_rng(9)
    counts = Counter()
    for state in random_states(original, 16, seed=10):
        words = slow_candidates(original, state)
        for guess in [*draw.choice(original.words.allowed, 30).tolist(), words[0], words[-1]]:
            assert original.is_consistent(guess, state) == fits(guess, state)
            total = broken_clues(guess, letter_facts(state.clues)).total
            assert (total == 0) == fits(guess, state)
            counts[total == 0] += 1
    assert min(counts[True], counts[False]) > 25


def test_so_does_every_guess_of_two_letters():
    words = ["".join(letters) for letters in product("ab", repeat=5)]
    codes = {pair: feedback_code(*pair) for pair in product(words, words)}
    for secret, guess in product(words, words):
        facts = letter_facts(state_after(secret, guess).clues)
        for word in words:
            fitting = codes[guess, word] == codes[guess, secret]
            assert (broken_clues(word, facts).total == 0) == fitting


def test_over_allowed_words_every_allowed_word_that_fits_is_a_candidate(small):
    knowledge = small.over_allowed
    assert knowledge.words.answers == knowledge.words.allowed == small.words.allowed
    for state in random_states(small, 4, seed=12):
        words = slow_candidates(knowledge, state)
        assert knowledge.candidate_words(state) == words
        assert set(words) > set(slow_candidates(small, state)) or len(words) < 3
        best = max(slow_bits(guess, words) for guess in small.words.allowed)
        assert knowledge.best_entropy(state) == pytest.approx(best, abs=1e-9)
