"""Reads the cells of a row: words, feedback, and lists of earlier guesses.

Files come from anywhere. A cell is never evaluated as code, and addresses in it are never opened.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import Any

from wordle_rl.game.rules import MARKS
from wordle_rl.words.lists import WORD_LENGTH

_LONGEST_TEXT = 10_000  # characters of a list that is written as text
_MOST_BRACKETS = 500  # in such a text
_MOST_GUESSES = 100
_SHOWN = 40  # characters of a wrong cell in a message


class BadRow(ValueError):
    """A row cannot be trained on. The message says why, in a few words."""


def shown(value: Any) -> str:
    """A wrong cell for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def read_word(name: str, value: Any) -> str:
    """A word of five ASCII letters, in lower case. name: what it is, for the message."""
    word = value.strip().lower() if isinstance(value, str) else ""
    if len(word) != WORD_LENGTH or not (word.isascii() and word.isalpha()):
        raise BadRow(f"the {name} must have five letters, not {shown(value)}")
    return word


def read_guesses(value: Any) -> list[tuple[str, int]]:
    """Earlier guesses with the feedback codes that the file gives them.

    value: a list of [guess, feedback] pairs, or of objects with these two names, or the text of
    such a list in Python or JSON. None and empty text mean no guess.
    """
    if isinstance(value, str):
        value = _read_list(value) if value.strip() else []
    if value is None:
        return []
    if not isinstance(value, list | tuple) or len(value) > _MOST_GUESSES:
        raise BadRow(f"the earlier guesses must be a short list, not {shown(value)}")
    return [_read_guess(item) for item in value]


def _read_list(text: str) -> Any:
    """The list in a text. Only literals are read, and no code runs."""
    if len(text) > _LONGEST_TEXT or sum(map(text.count, "[{(")) > _MOST_BRACKETS:
        raise BadRow(f"the list of earlier guesses is too long ({len(text)} characters)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about backslashes in strings
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise BadRow(f"the earlier guesses are no list: {shown(text)}") from None


def _read_guess(item: Any) -> tuple[str, int]:
    if isinstance(item, Mapping):
        item = item.get("guess"), item.get("feedback")
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise BadRow(f"an earlier guess must be a pair of guess and feedback, not {shown(item)}")
    guess = read_word("guess", item[0])
    return guess, read_feedback(guess, item[1])


def read_feedback(guess: str, value: Any) -> int:
    """The code 0..242 of feedback written as `x-✓xx` or as `C(x) R(-) A(✓) N(x) E(x)`."""
    text = "".join(value.split()) if isinstance(value, str) else ""
    if len(text) == 4 * WORD_LENGTH:
        parts = [text[i : i + 4] for i in range(0, len(text), 4)]
        letters = "".join(part[0] for part in parts).lower()
        if letters == guess and all(part[1] + part[3] == "()" for part in parts):
            text = "".join(part[2] for part in parts)
    if len(text) != WORD_LENGTH or not set(text) <= set(MARKS):
        raise BadRow(f"the feedback of {guess} cannot be read: {shown(value)}")
    code = 0
    for mark in text:
        code = 3 * code + MARKS.index(mark)
    return code
