"""What a prompt says of a state leaves exactly the words that its clues leave.

The texts are read back by readers of their own, which know neither the clues nor letter_facts.
"""

import random
import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.prompts.styles import Letters, Places, Spelled, Symbols, WholeState
from wordle_rl.words.lists import WordLists, load_words

TIMES = {"once": 1, "twice": 2, "three times": 3, "four times": 4, "five times": 5}
CODE = {"x": 0, "-": 1, "✓": 2}


@cache
def lists() -> WordLists:
    return load_words()


@cache
def letters() -> np.ndarray:
    """[answers, 5] of the answers' letters."""
    return np.array([list(word) for word in lists().answers])


@cache
def copies(letter: str) -> np.ndarray:
    """[answers] how often each has a letter."""
    return (letters() == letter).sum(axis=1)


def places(text: str) -> list[int]:
    return [int(place) - 1 for place in text.split()]


def mask_of_state(text: str) -> np.ndarray:
    """[answers] which of them fit a text of prompt=state."""
    fits = np.ones(len(letters()), bool)
    for line in text.splitlines():
        head, colon, rest = line.partition(": ")
        items = rest.split(", ") if colon else []
        for item in items:
            first, _, tail = item.partition(" ")
            if head == "Known places":
                fits &= letters()[:, int(first) - 1] == tail
            elif head == "In the word, not at the places given":
                fits &= (copies(first) > 0) & (letters()[:, places(tail)] != first).all(axis=1)
            elif head == "How often in the word":
                kind, times = re.fullmatch(r"(exactly|at least) (.+)", tail).groups()
                counts, number = copies(first), TIMES[times]
                fits &= counts == number if kind == "exactly" else counts >= number
            elif head == "Not in the word":
                fits &= copies(first) == 0
            else:
                assert head == "Guesses so far", line
    return fits


@cache
def codes(guess: str) -> np.ndarray:
    """[answers] feedback, by the rules of a single game."""
    return np.array([feedback_code(guess, answer) for answer in lists().answers])


def mask_of_marks(text: str) -> np.ndarray:
    """[answers] which of them fit a text of prompt=symbols, letters or places."""
    fits = np.ones(len(letters()), bool)
    for line in text.splitlines():
        guess, arrow, rest = line.lower().partition(" -> ")
        if arrow:
            marks = [mark for mark in re.sub(r"[a-z][(1-5]|\)| ", "", rest)]
            code = sum(CODE[mark] * 3 ** (4 - i) for i, mark in enumerate(marks))
            fits &= codes(guess) == code
    return fits


def mask_of_spelled(text: str) -> np.ndarray:
    """[answers] which of them fit a text of prompt=spelled."""
    fits = np.ones(len(letters()), bool)
    for line in text.lower().splitlines():
        head, _, rest = line.partition(": ")
        if head == "count":
            for letter, kind, times in re.findall(
                r"(\w) (exactly|at least) ((?:\w+ times|\w+))", rest
            ):
                counts, number = copies(letter), TIMES[times]
                fits &= counts == number if kind == "exactly" else counts >= number
            continue
        for place, item in enumerate(rest.split()):
            if head == "not":
                fits &= copies(item) == 0
            elif head == "has":
                slots = places(" ".join(item[1:]))
                fits &= (copies(item[0]) > 0) & (letters()[:, slots] != item[0]).all(axis=1)
            else:
                assert head == "word", line
                fits &= True if item == "_" else letters()[:, place] == item
    return fits


def states(count: int, seed: int = 0) -> Iterator[State]:
    """Of games of one to five guesses; every third guess has a letter twice."""
    draw = random.Random(seed)
    doubles = [w for w in lists().allowed if len(set(w)) < 5]
    pool = [draw.choice(lists().allowed) for _ in range(30)] + draw.sample(doubles, 20)
    for number in range(count):
        secret = draw.choice(lists().answers)
        guesses = [g for g in draw.sample(pool, 1 + number % 5) if g != secret]
        clues = tuple(Clue(g, feedback_code(g, secret)) for g in guesses)
        yield State(clues, len(clues) + number % 2)


def mask_of_clues(state: State) -> np.ndarray:
    fits = np.ones(len(letters()), bool)
    for clue in state.clues:
        fits &= codes(clue.guess) == clue.feedback
    return fits


READERS = [
    (WholeState(), mask_of_state),
    (Symbols(), mask_of_marks),
    (Letters(), mask_of_marks),
    (Places(), mask_of_marks),
    (Spelled(), mask_of_spelled),
    (Spelled(wording="shown"), mask_of_spelled),
]


@pytest.mark.parametrize(("style", "read"), READERS, ids=lambda x: getattr(x, "name", ""))
def test_a_text_leaves_exactly_the_words_that_the_clues_leave(style, read):  # row 34
    for state in states(200):
        text = style.opening(state)
        assert np.array_equal(read(text), mask_of_clues(state)), text
