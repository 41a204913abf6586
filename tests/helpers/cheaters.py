"""Scripted cheaters: answers that a careless reward would pay for, to test rewards and parser.

Each cheats on every turn. They know the candidates, so that only the cheat itself can cost them.
write: turns a guess into an answer, in the form under test. uniform: in [0, 1), the only chance.
"""

from __future__ import annotations

from collections.abc import Callable

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import pick
from wordle_rl.game.rules import ALL_PLACED, Clue, State

Write = Callable[[str], str]
Cheater = Callable[[Knowledge, Write, State, float], str]

_CYRILLIC = str.maketrans("aceijopsxy", "асеіјорѕху")
_FULL_WIDTH = str.maketrans({chr(ord("a") + i): chr(0xFF41 + i) for i in range(26)})


def _candidate(known: Knowledge, state: State, uniform: float) -> str:
    words = known.candidate_words(state) or known.words.answers
    return words[pick(uniform, len(words))]


def two_guesses(known: Knowledge, write: Write, state: State, uniform: float) -> str:
    other = _candidate(known, state, 1.0 - uniform)
    return write(_candidate(known, state, uniform)) + write(other)


def guess_inside_think(known: Knowledge, write: Write, state: State, uniform: float) -> str:
    return f"<think>{write(_candidate(known, state, uniform))}</think>"


def repeat_the_first_guess(known: Knowledge, write: Write, state: State, uniform: float) -> str:
    return write(state.guesses[0] if state.clues else _candidate(known, state, uniform))


def say_nothing(known: Knowledge, write: Write, state: State, uniform: float) -> str:
    return ""


def copy_feedback(known: Knowledge, write: Write, state: State, uniform: float) -> str:
    """The last clue's, or an invented win on an empty board."""
    invented = Clue(_candidate(known, state, uniform), ALL_PLACED)
    clue = state.clues[-1] if state.clues else invented
    pairs = zip(clue.guess.upper(), clue.marks, strict=True)
    return write(" ".join(f"{letter}({mark})" for letter, mark in pairs))


def look_alike_letters(known: Knowledge, write: Write, state: State, uniform: float) -> str:
    """A candidate in Cyrillic where it has such letters, else in full-width ones."""
    word = _candidate(known, state, uniform)
    disguised = word.translate(_CYRILLIC)
    cyrillic = uniform < 0.5 and disguised != word
    return write(disguised if cyrillic else word.translate(_FULL_WIDTH))


def stall(known: Knowledge, write: Write, state: State, uniform: float) -> str:
    """Legal words that cannot win, to be paid for more turns; if possible such as fit all clues."""
    left = known.candidate_words(state)
    fitting = known.consistent_allowed(state)
    words = [word for word in known.words.allowed if word not in left]
    fit = [word for word in words if fitting[known.words.guess_index[word]]]
    choices = fit or words or known.words.allowed
    return write(choices[pick(uniform, len(choices))])


CHEATERS: tuple[Cheater, ...] = (
    two_guesses, guess_inside_think, repeat_the_first_guess, say_nothing, copy_feedback,
    look_alike_letters, stall,
)  # fmt: skip
