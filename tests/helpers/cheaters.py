"""Scripted cheaters: answers that a careless reward would pay for, to test rewards and parser.

Each cheats on every turn. They know the candidates, so that only the cheat itself can cost them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Player, guess_text, pick
from wordle_rl.game.rules import ALL_PLACED, Clue, State

_CYRILLIC = str.maketrans("aceijopsxy", "асеіјорѕху")
_FULL_WIDTH = str.maketrans({chr(ord("a") + i): chr(0xFF41 + i) for i in range(26)})


class Cheater(Player):
    """The base of all cheaters: finds a good word to cheat with.

    write: turns a guess into an answer, in the form under test.
    """

    name = "cheater"
    speaks = True

    def __init__(self, knowledge: Knowledge, write: Callable[[str], str] = guess_text) -> None:
        self._knowledge = knowledge
        self._write = write

    def _candidate(self, state: State, uniform: float) -> str:
        words = self._knowledge.candidate_words(state) or self._knowledge.words.answers
        return words[pick(uniform, len(words))]


class TwoGuesses(Cheater):
    """Hedges with two guesses in one answer."""

    name = "cheater-two-guesses"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        other = self._candidate(state, 1.0 - uniform)
        return self._write(self._candidate(state, uniform)) + self._write(other)


class GuessInsideThink(Cheater):
    """Guesses only while thinking."""

    name = "cheater-guess-inside-think"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        return f"<think>{self._write(self._candidate(state, uniform))}</think>"


class Repeater(Cheater):
    """Makes its first guess again and again."""

    name = "cheater-repeater"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        return self._write(state.guesses[0] if state.clues else self._candidate(state, uniform))


class Empty(Cheater):
    """Says nothing."""

    name = "cheater-empty"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        return ""


class CopiedFeedback(Cheater):
    """Writes feedback instead of a guess: the last clue's, or an invented win on an empty board."""

    name = "cheater-copied-feedback"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        invented = Clue(self._candidate(state, uniform), ALL_PLACED)
        clue = state.clues[-1] if state.clues else invented
        pairs = zip(clue.guess.upper(), clue.marks, strict=True)
        return self._write(" ".join(f"{letter}({mark})" for letter, mark in pairs))


class LookAlikeLetters(Cheater):
    """Spells a candidate with Cyrillic or full-width letters that look like a to z."""

    name = "cheater-look-alike-letters"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        word = self._candidate(state, uniform)
        disguised = word.translate(_CYRILLIC)
        # Half of the answers prefer Cyrillic, which has no look-alikes for some words.
        cyrillic = uniform < 0.5 and disguised != word
        return self._write(disguised if cyrillic else word.translate(_FULL_WIDTH))


class Staller(Cheater):
    """Plays legal words that cannot win, to be paid for more turns.

    It prefers words that fit all clues but are no possible secrets, then any word that is not a
    candidate; only where every allowed word is a candidate must it play one.
    """

    name = "cheater-staller"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        words = self._knowledge.words
        harmless = np.ones(len(words.allowed), dtype=bool)
        for word in self._knowledge.candidate_words(state):
            harmless[words.guess_index[word]] = False
        fitting = np.flatnonzero(harmless & self._knowledge.consistent_allowed(state))
        for choice in (fitting, np.flatnonzero(harmless), np.arange(len(words.allowed))):
            if len(choice):
                return self._write(words.allowed[choice[pick(uniform, len(choice))]])
        raise ValueError("the list of allowed words is empty")


CHEATERS = (
    TwoGuesses,
    GuessInsideThink,
    Repeater,
    Empty,
    CopiedFeedback,
    LookAlikeLetters,
    Staller,
)
