"""Reads what a page sends: a JSON object of a few known fields, each of them checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from wordle_rl.game.rules import ALL_PLACED, MARKS, Clue
from wordle_rl.runs.untrusted import parse_json, printable
from wordle_rl.web.refused import Refused
from wordle_rl.words.lists import WORD_LENGTH

MOST_BYTES = 4_096  # of a request's body
_WORD = re.compile(f"[A-Za-z]{{{WORD_LENGTH}}}")
_SHOWN = 40  # characters of a wrong value in a message


class Fields:
    """The fields of one request. Every method raises Refused with status 422 for a wrong value."""

    def __init__(self, body: bytes, known: Collection[str]) -> None:
        """Raises Refused, with status 400 where the body is no JSON object."""
        try:
            given = parse_json(body)
        except ValueError:
            raise Refused(400, "the body must be JSON") from None
        if not isinstance(given, dict):
            raise Refused(400, "the body must be a JSON object")
        if unknown := sorted(set(given) - set(known)):
            names = ", ".join(known) or "none"
            raise Refused(422, f"there is no field {_told(unknown[0])}; the fields are {names}")
        self._given: dict[str, Any] = given

    def has(self, name: str) -> bool:
        return self._given.get(name) is not None

    def word(self, name: str) -> str:
        """Five letters, in lower case."""
        value = self._given.get(name)
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            raise _wrong(name, f"{WORD_LENGTH} letters a to z", value)
        return value.lower()

    def one_of(self, name: str, options: Collection[str]) -> str:
        value = self._given.get(name)
        if not isinstance(value, str) or value not in options:
            raise _wrong(name, f"one of {', '.join(options)}", value)
        return value

    def key(self, name: str) -> str:
        """A name that the program made up itself: letters, digits, - and _."""
        value = self._given.get(name)
        if not isinstance(value, str) or not re.fullmatch(r"[\w-]{1,64}", value, re.ASCII):
            raise _wrong(name, "1 to 64 letters, digits, - and _", value)
        return value

    def number(self, name: str, most: int) -> int:
        """A whole number from 0 to `most`."""
        value = self._given.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise _wrong(name, f"a whole number 0..{most}", value)
        return value

    def clues(self, name: str, most: int) -> tuple[Clue, ...]:
        """A list of pairs: a guess and its five marks."""
        value = self._given.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise _wrong(name, f"a list of at most {most} guesses with their marks", value)
        return tuple(_clue(f"{name}[{i}]", pair) for i, pair in enumerate(value))


def code_of(marks: str) -> int | None:
    """The feedback code of five marks, None for other texts. v may replace ✓."""
    digits = [MARKS.find(mark) for mark in marks.replace("v", "✓")]
    if len(digits) != WORD_LENGTH or min(digits) < 0:
        return None
    code = 0
    for digit in digits:
        code = 3 * code + digit
    return code


def _clue(name: str, pair: object) -> Clue:
    match pair:
        case [str(guess), str(marks)] if _WORD.fullmatch(guess):
            code = code_of(marks)
            if code == ALL_PLACED:
                raise Refused(422, f"{name}: five ✓ end a game, so there is nothing to ask")
            if code is not None:
                return Clue(guess.lower(), code)
    raise _wrong(name, f"{WORD_LENGTH} letters a to z and {WORD_LENGTH} marks of {MARKS}", pair)


def _wrong(name: str, allowed: str, value: object) -> Refused:
    return Refused(422, f"{name} must be {allowed}, not {_told(value)}")


def _told(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = printable(str(value)[: _SHOWN + 1])
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
