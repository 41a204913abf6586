"""The two word lists of a game: possible secrets and legal guesses.

The lists are the original game's, which ship with the package, or a user's .txt or .csv files.
Words are five ASCII letters; upper case becomes lower case. Faults of a file are one-line errors.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from wordle_rl.runs.files import FolderError, read_text

WORD_LENGTH = 5
ORIGINAL = Path(__file__).parent / "original"
_MOST_PAIRS = 1_000_000_000  # answers times allowed words, the bytes of the feedback table


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
                if fault := _fault(word):
                    raise WordListError(f"{self.name}: {which}: {fault}")
            if any(a >= b for a, b in pairwise(words)):
                raise WordListError(f"{self.name}: {which} must be sorted and distinct")
        if missing := set(self.answers) - set(self.allowed):
            raise WordListError(f"{self.name}: answer {min(missing)!r} is not an allowed guess")
        if len(self.answers) * len(self.allowed) > _MOST_PAIRS:
            raise WordListError(
                f"{self.name}: {len(self.answers):,} possible secrets and {len(self.allowed):,} "
                f"allowed words are too many: their product must be at most {_MOST_PAIRS:,}"
            )

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over both lists, without the name."""
        both = f"{words_digest(self.answers)} {words_digest(self.allowed)}"
        return hashlib.sha256(both.encode()).hexdigest()

    @cached_property
    def over_allowed(self) -> WordLists:
        """Lists on which every allowed word is a possible secret; these lists if it already is.

        Raises WordListError if the feedback table would be too large.
        """
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

    answers, allowed: a .txt file with a word per line (blank lines are skipped), or a .csv file
    with a header and its words in column. Without allowed, the answers are the legal guesses.
    Raises WordListError with one line that names the file and the row.
    """
    name = "original" if answers is None else Path(answers).stem
    if answers is None:
        if allowed is not None or column is not None:
            raise WordListError("words.allowed and words.column need words.answers")
        answers, allowed = ORIGINAL / "answers.txt", ORIGINAL / "allowed.txt"
    elif column is not None and ".csv" not in f"{answers} {allowed}".lower():
        raise WordListError(f"words.column applies to .csv files, not to {answers}")
    secrets = _read("answers", Path(answers), column)
    guesses = secrets if allowed is None else _read("allowed", Path(allowed), column)
    return WordLists(answers=tuple(sorted(secrets)), allowed=tuple(sorted(guesses)), name=name)


def _read(key: str, path: Path, column: str | None) -> set[str]:
    """The words of a file in lower case. key: answers or allowed."""
    where, suffix = f"words.{key}={path}", path.suffix.lower()
    if suffix not in (".txt", ".csv"):
        raise WordListError(f"{where}: a word list must be a file whose name ends in .txt or .csv")
    try:
        text = read_text(path)
    except FolderError as error:
        raise WordListError(f"words.{key}={error}") from None
    words: set[str] = set()
    rows = _csv_rows(where, text, column) if suffix == ".csv" else enumerate(text.split("\n"), 1)
    for row, cell in rows:
        if not (word := cell.strip(" \t\r").lower()):
            continue
        if fault := _fault(word) or (word in words and f"{word!r} stands twice"):
            raise WordListError(f"{where} row {row}: {fault}")
        words.add(word)
    if not words:
        raise WordListError(f"{where}: no words in it")
    return words


def _csv_rows(where: str, text: str, column: str | None) -> Iterator[tuple[int, str]]:
    """Line number and cell of the named column, without the header."""
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    try:
        if column not in (names := reader.fieldnames or []):
            raise WordListError(
                f"{where} row 1: words.column must be one of {', '.join(names)}, not {column}"
            )
        for row in reader:
            yield reader.line_num, row[column] or ""
    except csv.Error as error:
        raise WordListError(f"{where} row {reader.reader.line_num}: not CSV ({error})") from None


def _fault(word: str) -> str:
    """What is wrong with a word; empty if nothing is."""
    if len(word) != WORD_LENGTH:
        return f"{word[:40]!r} has {len(word)} characters, not {WORD_LENGTH}"
    lower = word.isascii() and word.isalpha() and word.islower()
    return "" if lower else f"{word!r} holds something other than the letters a to z"
