"""The two word lists of a game: possible secrets and legal guesses.

The lists are the original game's, which ship with the package, or a user's .txt or .csv files.
Words are five ASCII letters; upper case becomes lower case. Faults of a file are one-line errors.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from wordle_rl.runs.files import read_text

WORD_LENGTH = 5


DATA = Path(__file__).parent
PRESETS = ("original",)  # folders here that hold answers.txt and allowed.txt

_WORD = re.compile(rf"[A-Za-z]{{{WORD_LENGTH}}}")
_MOST_PAIRS = 1_000_000_000  # answers times allowed words, the bytes of the feedback table
_SHOWN = 40  # most characters of a faulty word in an error


class WordListError(ValueError):
    """A word list cannot be used; the message is one line that names the file and the row."""


@dataclass(frozen=True, kw_only=True)
class WordLists:
    """Possible secrets and legal guesses of a game.

    Raises WordListError unless both lists are sorted, without repeats, of five lower-case ASCII
    letters, and every answer is allowed. load_words brings files into this form.
    """

    answers: tuple[str, ...]  # possible secrets, sorted, lower case
    allowed: tuple[str, ...]  # legal guesses, sorted, lower case, the answers included
    name: str = "custom"  # for reports

    def __post_init__(self) -> None:
        for which, words in (("answers", self.answers), ("allowed", self.allowed)):
            if not words:
                raise WordListError(f"{self.name}: the list of {which} is empty")
            for word in words:
                if (fault := _fault(word)) or not word.islower():
                    fault = fault or f"{word!r} is not lower case"
                    raise WordListError(f"{self.name}: {which}: {fault}")
            if any(a >= b for a, b in pairwise(words)):
                raise WordListError(f"{self.name}: {which} must be sorted and distinct")
        if missing := set(self.answers) - set(self.allowed):
            raise WordListError(f"{self.name}: answer {min(missing)!r} is not an allowed guess")

    @cached_property
    def answers_digest(self) -> str:
        """Hex sha256 of the answers joined by newlines."""
        return words_digest(self.answers)

    @cached_property
    def allowed_digest(self) -> str:
        """Hex sha256 of the allowed guesses joined by newlines."""
        return words_digest(self.allowed)

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over both lists, without the name."""
        return hashlib.sha256(f"{self.answers_digest} {self.allowed_digest}".encode()).hexdigest()

    @cached_property
    def over_allowed(self) -> WordLists:
        """Lists on which every allowed word is a possible secret; these lists if it already is.

        Raises WordListError if the feedback table would be too large.
        """
        count = len(self.allowed)
        if count == len(self.answers):
            return self
        if count**2 > _MOST_PAIRS:
            raise WordListError(
                f"{self.name}: {count:,} allowed words are too many to be possible secrets: "
                f"their square must be at most {_MOST_PAIRS:,}"
            )
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
    preset: str | None = "original",
    answers: str | Path | None = None,
    allowed: str | Path | None = None,
    column: str | None = None,
) -> WordLists:
    """Read the word lists of a preset or, when answers is given, of a user's files.

    answers, allowed: a .txt file with a word per line (blank lines are skipped), or a .csv file
    with a header and its words in column. Without allowed, the answers are the legal guesses.
    Raises WordListError with one line that names the file and the row.
    """
    if answers is None:
        if allowed is not None:
            raise WordListError("words.allowed needs words.answers: name both files")
        if column is not None:
            raise WordListError("words.column needs words.answers to be a .csv file")
        if preset not in PRESETS:
            raise WordListError(
                f"words.preset must be one of {', '.join(PRESETS)}, not {preset!r}, "
                "unless words.answers names a file"
            )
        folder = DATA / preset
        return _lists(preset, folder / "answers.txt", folder / "allowed.txt", None)
    files = [Path(answers)] + ([Path(allowed)] if allowed is not None else [])
    if column is not None and all(file.suffix.lower() != ".csv" for file in files):
        raise WordListError(f"words.column applies to .csv files, not to {files[0]}")
    return _lists(files[0].stem, files[0], files[1] if allowed is not None else None, column)


def _lists(name: str, answers: Path, allowed: Path | None, column: str | None) -> WordLists:
    secrets = _read("answers", answers, column)
    guesses = _read("allowed", allowed, column) if allowed is not None else secrets
    for word, row in secrets.items():
        if word not in guesses:
            raise WordListError(
                f"words.answers={answers} row {row}: {word!r} is not an allowed word, see {allowed}"
            )
    if len(secrets) * len(guesses) > _MOST_PAIRS:
        raise WordListError(
            f"words.answers={answers}: {len(secrets):,} answers and {len(guesses):,} allowed words "
            f"are too many: their product must be at most {_MOST_PAIRS:,}"
        )
    return WordLists(answers=tuple(sorted(secrets)), allowed=tuple(sorted(guesses)), name=name)


def _read(which: str, path: Path, column: str | None) -> dict[str, int]:
    """The words of a file in lower case, each with its row."""
    try:
        return _words(path, column)
    except ValueError as error:
        raise WordListError(f"words.{which}={error}") from None


def _words(path: Path, column: str | None) -> dict[str, int]:
    """As _read, but raises ValueError with a message that begins with the path."""
    suffix = path.suffix.lower()
    if suffix not in (".txt", ".csv"):
        raise WordListError(f"{path}: a word list must be a file whose name ends in .txt or .csv")
    text = read_text(path)
    rows = _csv_rows(path, text, column) if suffix == ".csv" else enumerate(text.split("\n"), 1)
    words: dict[str, int] = {}
    for row, cell in rows:
        word = cell.strip(" \t\r")
        if not word:
            continue
        if fault := _fault(word):
            raise WordListError(f"{path} row {row}: {fault}")
        word = word.lower()
        if word in words:
            raise WordListError(f"{path} rows {words[word]} and {row}: {word!r} stands twice")
        words[word] = row
    if not words:
        raise WordListError(f"{path}: no words in it")
    return words


def _csv_rows(path: Path, text: str, column: str | None) -> list[tuple[int, str]]:
    """Line number and cell of the named column, without the header."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise WordListError(f"{path} row 1: no header, so no words.column")
        if column not in header:
            raise WordListError(
                f"{path} row 1: words.column must be one of {', '.join(map(repr, header))}, "
                f"not {column!r}"
            )
        place = header.index(column)
        return [(reader.line_num, row[place] if place < len(row) else "") for row in reader]
    except csv.Error as error:
        raise WordListError(f"{path} row {reader.line_num}: not CSV ({error})") from None


def _fault(word: str) -> str | None:
    """What is wrong with a word, or None."""
    if _WORD.fullmatch(word):
        return None
    shown = repr(word if len(word) <= _SHOWN else word[:_SHOWN] + "...")
    if len(word) != WORD_LENGTH:
        return f"{shown} has {len(word)} characters, not {WORD_LENGTH}"
    return f"{shown} holds something other than the letters a to z"
