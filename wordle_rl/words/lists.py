"""The two word lists of a game: possible secrets and legal guesses.

The lists are the original game's, which ship with the package, or a user's .txt or .csv files.
Words are five ASCII letters; upper case becomes lower case. Faults of a file are one-line errors.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from wordle_rl.runs.files import FolderError, read_text

WORD_LENGTH = 5
ORIGINAL = Path(__file__).parent / "original"


class WordListError(ValueError):
    """A word list cannot be used; the message is one line that names the list."""


@dataclass(frozen=True, kw_only=True)
class WordLists:
    """Possible secrets and legal guesses of a game, each sorted, without repeats.

    Raises WordListError unless all are five lower-case ASCII letters and every answer is allowed.
    """

    answers: tuple[str, ...]  # possible secrets
    allowed: tuple[str, ...]  # legal guesses, the answers included
    name: str = "custom"  # for reports

    def __post_init__(self) -> None:
        for key, words in (("answers", self.answers), ("allowed", self.allowed)):
            label = f"{self.name}: the list of {key}"
            if not words:
                raise WordListError(f"{label} is empty")
            for word in words:
                lower = word.isascii() and word.isalpha() and word.islower()
                if len(word) != WORD_LENGTH or not lower:
                    raise WordListError(f"{label} has {word[:40]!r}, not five letters a to z")
            for word, next_word in pairwise(words):
                if word >= next_word:
                    fault = f"has {word!r} twice" if word == next_word else "is not sorted"
                    raise WordListError(f"{label} {fault}")
        if missing := set(self.answers) - set(self.allowed):
            raise WordListError(f"{self.name}: answer {min(missing)!r} is not an allowed guess")

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over both lists, without the name."""
        text = f"{words_digest(self.answers)} {words_digest(self.allowed)}"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def over_allowed(self) -> WordLists:
        """Lists on which every allowed word is a possible secret; these lists if it already is."""
        if len(self.allowed) == len(self.answers):
            return self
        return WordLists(answers=self.allowed, allowed=self.allowed, name=f"{self.name}, allowed")

    @cached_property
    def allowed_set(self) -> frozenset[str]:
        return frozenset(self.allowed)

    @cached_property
    def guess_index(self) -> dict[str, int]:
        """Allowed guess -> its index in allowed, which is its row in the feedback table."""
        return {word: i for i, word in enumerate(self.allowed)}

    @cached_property
    def answer_index(self) -> dict[str, int]:
        """Answer -> its index in answers, which is its column in the feedback table."""
        return {word: i for i, word in enumerate(self.answers)}


def words_digest(words: Iterable[str]) -> str:
    """Hex sha256 of the sorted words joined by newlines, no final newline."""
    return hashlib.sha256("\n".join(sorted(words)).encode()).hexdigest()


def load_words(
    *,
    answers: str | Path | None = None,
    allowed: str | Path | None = None,
    column: str | None = None,
) -> WordLists:
    """Read the original word lists or, when answers is given, a user's files.

    answers, allowed: a file with a word per line (blank lines are skipped), or a .csv file with a
    header and its words in column. Without allowed, the answers are the legal guesses. Two files
    without a common word are both of them.
    Raises WordListError with one line that names the file.
    """
    name = "original" if answers is None else str(answers)
    if answers is None:
        if allowed is not None or column is not None:
            raise WordListError("words.allowed and words.column need words.answers")
        answers, allowed = ORIGINAL / "answers.txt", ORIGINAL / "allowed.txt"
    secrets = _read("answers", Path(answers), column)
    guesses = secrets if allowed is None else _read("allowed", Path(allowed), column)
    if guesses and not {*secrets} & {*guesses}:  # as the original game's source has them
        guesses = tuple(sorted({*secrets, *guesses}))
        reason = (
            f"no answer is in words.allowed={allowed}, so the {len(guesses):,} words of both files"
        )
        print(f"note: {reason} are legal guesses", file=sys.stderr)
    return WordLists(answers=secrets, allowed=guesses, name=name)


def _read(key: str, path: Path, column: str | None) -> tuple[str, ...]:
    """The words of a file in lower case, sorted. key: answers or allowed."""
    try:
        text = read_text(path, pipe=True)
    except FolderError as error:
        raise WordListError(f"words.{key}={error}") from None
    cells = text.split("\n")
    if path.suffix.lower() == ".csv":
        rows = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
        if column not in (names := rows.fieldnames or ()):
            raise WordListError(f"words.{key}={path}: {_describe_columns(names, column)}")
        cells = ["", *(row[column] or "" for row in rows)]  # the header is row 1
    words = [cell.strip(" \t\r").lower() for cell in cells]
    seen: dict[str, int] = {}
    for row, word in enumerate(words, 1):
        if word and word in seen:
            raise WordListError(
                f"words.{key}={path} row {row}: has {word!r} twice, first in row {seen[word]}"
            )
        seen[word] = row
    return tuple(sorted(filter(None, words)))


def _describe_columns(names: Sequence[str], column: str | None) -> str:
    """What to give for words.column, which is none of a file's columns."""
    title = names[0].strip() if len(names) == 1 else ""
    if len(title) == WORD_LENGTH and title.isalpha():
        return (
            f"begins with {title!r}: if that is a word, and the file has no header, name it .txt; "
            f"if it is the title of the words, set words.column={title}"
        )
    return f"words.column must be {', '.join(names)}, not {column}"
