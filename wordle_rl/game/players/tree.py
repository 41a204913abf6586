"""A player that follows a decision tree from a text file, for instance an optimal one.

The file has one line per answer: the guesses of its game in order, separated by spaces or commas,
with the answer itself last (`salet courd mince` or `salet,courd,mince`). Blank lines and lines that
start with # are skipped. Lines with the same clues so far must have the same next guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.runs.files import read_text
from wordle_rl.words.lists import WORD_LENGTH

_WORD = re.compile(rf"[A-Za-z]{{{WORD_LENGTH}}}")
Node = tuple[Clue, ...]


class TreePlayer:
    """Plays a tree, which TreePlayer.from_file reads; uses no randomness.

    games: row of the file -> its guesses in order. answers: the secrets it can find.
    """

    name = "tree"

    def __init__(self, games: dict[int, tuple[str, ...]], source: str = "tree") -> None:
        self.source = source
        self.answers = frozenset(guesses[-1] for guesses in games.values())
        self._next: dict[Node, str] = {}
        rows: dict[Node, int] = {}
        for row, guesses in games.items():
            clues: Node = ()
            for guess in guesses:
                if self._next.setdefault(clues, guess) != guess:
                    raise ValueError(
                        f"{source} rows {rows[clues]} and {row} conflict: {_told(clues)} "
                        f"one guesses {self._next[clues]!r}, the other {guess!r}"
                    )
                rows.setdefault(clues, row)
                clues = (*clues, Clue(guess, feedback_code(guess, guesses[-1])))

    @classmethod
    def from_file(cls, path: str | Path) -> TreePlayer:
        """Read a tree. Raises ValueError in one line that names the file and the row."""
        path = Path(path)
        text = read_text(path)
        games: dict[int, tuple[str, ...]] = {}
        row_of: dict[str, int] = {}
        for row, line in enumerate(text.split("\n"), 1):
            guesses = tuple(re.sub("[,\t\r]", " ", line).lower().split())
            if not guesses or guesses[0].startswith("#"):
                continue
            for guess in guesses:
                if not _WORD.fullmatch(guess):
                    raise ValueError(f"{path} row {row}: {guess[:40]!r} is not five letters a to z")
            if len(set(guesses)) < len(guesses):
                raise ValueError(f"{path} row {row}: a guess stands twice")
            if guesses[-1] in row_of:
                raise ValueError(
                    f"{path} rows {row_of[guesses[-1]]} and {row}: both end with {guesses[-1]!r}"
                )
            row_of[guesses[-1]] = row
            games[row] = guesses
        if not games:
            raise ValueError(f"{path}: no games in it")
        return cls(games, str(path))

    def answer(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        """One guess per state. Raises ValueError for clues that do not occur in the tree."""
        return [self._guess(state.clues) for state in states]

    def _guess(self, clues: Node) -> str:
        if clues not in self._next:
            raise ValueError(f"{self.source} has no guess {_told(clues)}")
        return self._next[clues]


def _told(clues: Node) -> str:
    told = " ".join(f"{clue.guess.upper()} {clue.marks}" for clue in clues)
    return f"after {told}" if told else "for the empty board"
