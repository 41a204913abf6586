"""Knowledge: candidates, entropies and broken clues against slow definitions."""

from __future__ import annotations

import itertools
import math
from collections import Counter

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


def after(secret: str, *guesses: str) -> State:
    clues = tuple(Clue(guess, feedback_code(guess, secret)) for guess in guesses)
    return State(clues, len(clues))


def slow_candidates(knowledge: Knowledge, state: State) -> list[str]:
    return [
        word
        for word in knowledge.words.answers
        if all(feedback_code(clue.guess, word) == clue.feedback for clue in state.clues)
    ]


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
            state = after(secret, *state.guesses, guess)
        states.append(state)
    return states


def test_candidates_are_the_answers_that_fit_every_clue(small):
    for state in random_states(small, 40, seed=1):
        assert small.candidate_words(state) == slow_candidates(small, state)


def test_consistent_allowed_words_fit_every_clue_secret_or_not(small):
    for state in random_states(small, 20, seed=3):
        expected = [
            all(feedback_code(clue.guess, word) == clue.feedback for clue in state.clues)
            for word in small.words.allowed
        ]
        assert small.consistent_allowed(state).tolist() == expected


def test_entropy_is_the_definition_for_words_and_non_words(small):
    for state in random_states(small, 20, seed=4):
        left, mask = slow_candidates(small, state), small.candidates(state)
        for guess in (small.words.allowed[3], small.words.allowed[-1], "eerie", "qqqqq"):
            assert small.entropy(guess, mask) == pytest.approx(slow_bits(guess, left), abs=1e-12)


def test_entropies_of_all_guesses_are_the_entropy_of_each(small):
    for state in random_states(small, 12, seed=5):
        left = slow_candidates(small, state)
        expected = [slow_bits(guess, left) for guess in small.words.allowed]
        assert small.entropies(small.candidates(state)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [2, 5, 20, 21, 79, 80, 81, 300, 2315])
def test_ways_of_counting_agree_for_any_number_of_candidates(original, n):
    draw = np.random.default_rng(n)
    chosen = np.sort(draw.choice(2315, n, replace=False))
    mask = np.zeros(2315, dtype=bool)
    mask[chosen] = True
    bits = original.entropies(mask)
    left = [original.words.answers[i] for i in chosen]
    for row in draw.choice(12972, 25, replace=False).tolist():
        expected = slow_bits(original.words.allowed[row], left)
        assert bits[row] == pytest.approx(expected, abs=1e-10)


def test_best_entropy_is_the_maximum_over_all_guesses(original):
    for state in set(random_states(original, 60, seed=6)):
        every = original.entropies(original.candidates(state))
        assert original.best_entropy(state) == pytest.approx(every.max(), abs=1e-9)


def test_best_entropy_where_no_guess_tells_all_candidates_apart():
    # one letter differs, and no guess holds more than one of these letters: 4 splits off one
    answers = tuple(f"{first}ills" for first in "bdfghjkmpt")
    words = WordLists(answers=answers, allowed=answers)
    knowledge = Knowledge(words, build_table(words))
    expected = max(slow_bits(guess, list(answers)) for guess in answers)
    assert 0 < expected < math.log2(len(answers))
    assert knowledge.best_entropy(State()) == pytest.approx(expected, abs=1e-12)


def test_nothing_can_be_gained_once_one_candidate_is_left(original):
    state = after("crane", "crane")
    assert original.candidate_words(state) == ["crane"]
    assert original.best_entropy(state) == 0.0
    assert original.entropy("slate", original.candidates(state)) == 0.0
    assert original.value("crane", state) == 1.0
    assert original.value("slate", state) == 0.0


def test_value_is_the_share_of_the_best_entropy(original):
    # published for these lists: RAISE 5.878 bits, SOARE 5.886 bits
    assert original.value("soare", State()) == pytest.approx(1.0, abs=1e-9)
    assert original.value("raise", State()) == pytest.approx(5.878 / 5.886, abs=2e-4)
    assert original.value("qqqqq", State()) < 0.05


def test_expected_remaining_of_the_first_word_is_the_published_one(original):
    # ROATE leaves 60.42 words on average, RAISE 61.00: widely published for these lists
    mask = original.candidates(State())
    assert original.outlook("roate", mask)[1] == pytest.approx(60.42, abs=0.01)
    assert original.outlook("raise", mask)[1] == pytest.approx(61.00, abs=0.01)


def test_clue_that_no_answer_fits_leaves_no_candidate_and_nothing_to_learn(small):
    state = State((Clue("zzzzz", 242),), 1)
    assert small.candidate_words(state) == []
    assert small.best_entropy(state) == 0.0
    assert small.value("abbey", state) == 0.0
    mask = small.candidates(state)
    assert not small.entropies(mask).any()
    assert small.entropy("abbey", mask) == 0.0
    assert small.outlook("abbey", mask) == (0.0, 0.0)


def test_consistent_guess_gives_the_feedback_seen_so_far(small):
    state = after("crept", "sleep")  # E third, P elsewhere, no S, no L, one E only
    assert small.is_consistent("crept", state)
    assert small.is_consistent("qpeqq", state)  # no word, but it fits
    assert not small.is_consistent("creep", state)  # P cannot be last
    assert not small.is_consistent("pqeeq", state)  # two E
    assert small.is_consistent("zzzzz", State())


def test_facts_of_each_letter_are_bounds_on_its_copies():
    facts = letter_facts(after("crept", "sleep", "eerie").clues)  # xx✓x- and -x-xx
    assert facts.placed == {2: "e"}
    assert facts.at_least == {"e": 1, "p": 1, "r": 1}
    assert facts.at_most == {"s": 0, "l": 0, "e": 1, "i": 0}
    assert facts.excluded == {
        0: frozenset("e"),
        1: frozenset("e"),
        2: frozenset("r"),
        3: frozenset("e"),
        4: frozenset("pe"),
    }


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
    assert broken_clues(guess, letter_facts(after("crept", "sleep").clues)) == broken


def test_guess_breaks_no_clue_exactly_when_it_is_consistent(original):
    draw = np.random.default_rng(9)
    words = original.words
    seen = Counter()
    for state in random_states(original, 60, seed=10):
        left = slow_candidates(original, state)
        for guess in [*draw.choice(words.allowed, 40).tolist(), left[0], left[-1]]:
            fits = original.is_consistent(guess, state)
            assert (broken_clues(guess, letter_facts(state.clues)).total == 0) == fits
            seen[fits] += 1
    assert min(seen[True], seen[False]) > 100


def test_with_two_letters_every_guess_breaks_no_clue_exactly_when_it_is_consistent():
    """Real words seldom have a letter three times; of these, most have."""
    words = ["".join(letters) for letters in itertools.product("ab", repeat=5)]
    for guess in words:
        facts = {code: letter_facts((Clue(guess, code),)) for code in
                 {feedback_code(guess, secret) for secret in words}}  # fmt: skip
        fitting = {other: feedback_code(guess, other) for other in words}
        for code, known in facts.items():
            for other in words:
                consistent = fitting[other] == code
                assert (broken_clues(other, known).total == 0) == consistent, (guess, code, other)


def test_over_allowed_words_every_allowed_word_that_fits_is_a_candidate(small):
    over = small.over_allowed
    assert over.words.answers == over.words.allowed == small.words.allowed
    for state in random_states(small, 20, seed=12):
        left = slow_candidates(over, state)
        assert over.candidate_words(state) == left
        assert set(left) > set(slow_candidates(small, state)) or len(left) < 3
        best = max(slow_bits(guess, left) for guess in small.words.allowed)
        assert over.best_entropy(state) == pytest.approx(best, abs=1e-9)
