"""Words, states and a style for tests of what a teacher thinks before its guess."""

import random
from collections.abc import Iterator

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.prompts.styles import Symbols
from wordle_rl.words.lists import WordLists, load_words

SOME = load_words().answers[::8]
WORDS = WordLists(answers=SOME, allowed=tuple(sorted({*SOME, "eerie", "mammy"})), name="some")
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))
STYLE = Symbols(think=True)


def states(count: int, seed: int) -> Iterator[tuple[State, str, str]]:
    """States after random guesses, with a next guess and the secret; half the guesses fit."""
    draw = random.Random(seed)
    for _ in range(count):
        secret, clues = draw.choice(WORDS.answers), []
        for _ in range(draw.randrange(6)):
            guess = draw.choice(fitting(clues) if draw.random() < 0.5 else WORDS.allowed)
            if guess != secret:
                clues.append(Clue(guess, feedback_code(guess, secret)))
        guess = draw.choice(fitting(clues) if draw.random() < 0.5 else WORDS.allowed)
        yield State(tuple(clues), len(clues)), guess, secret


def fitting(clues: list[Clue]) -> list[str]:
    return [w for w in WORDS.answers if all(feedback_code(c.guess, w) == c.feedback for c in clues)]
