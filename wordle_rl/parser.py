"""Reads the guess out of an answer: `<think>...</think><guess>crane</guess>`, thinking optional.

Linear time on any input: only str.find, str.count and str.strip, no regular expressions.
Tags are lower case and exact. Only the text after the last `</think>` is looked at, so a `</think>`
whose opening tag was part of the prompt is fine, and what is thought never counts as a guess.
Spaces and line breaks (ASCII) may surround the word inside the tag; the guess never contains them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from wordle_rl.game import WORD_LENGTH

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_GUESS, CLOSE_GUESS = "<guess>", "</guess>"
# str.strip() without an argument would also take non-breaking spaces and other look-alikes.
SURROUNDING_WHITESPACE = " \t\r\n"


class ParseFailure(StrEnum):
    """Why no guess could be read."""

    EMPTY = "empty"  # nothing but white space
    NO_GUESS_TAG = "no_guess_tag"  # no guess tag anywhere
    UNCLOSED_GUESS = "unclosed_guess"  # an opening guess tag only
    UNOPENED_GUESS = "unopened_guess"  # a closing guess tag only, or before the opening one
    GUESS_INSIDE_THINK = "guess_inside_think"  # a guess tag, but none after the last think block
    UNCLOSED_THINK = "unclosed_think"  # the last think block never ends
    SEVERAL_GUESSES = "several_guesses"  # more than one opening or closing guess tag
    NESTED_GUESSES = "nested_guesses"  # a second opening guess tag before the first is closed
    NOT_ASCII_LETTERS = "not_ascii_letters"  # anything but a-z and A-Z inside the tag
    NOT_FIVE_LETTERS = "not_five_letters"  # ASCII letters, but not five of them
    TRUNCATED = "truncated"  # the answer hit its token limit; set by the caller


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """What one answer says; exactly one of guess and reason is None."""

    guess: str | None  # five lower-case ASCII letters
    reason: ParseFailure | None
    open_tags: int = 0  # opening guess tags after the last closed think block
    close_tags: int = 0  # closing guess tags there
    closed_thinks: int = 0  # closing think tags in the whole answer
    unclosed_think: bool = False  # an opening think tag after the last closing one

    @classmethod
    def failed(cls, reason: ParseFailure) -> Parsed:
        """A failure about whose text nothing else is known."""
        return cls(guess=None, reason=reason)

    def truncated(self) -> Parsed:
        """The same answer when it hit its token limit: whatever it says, it is no guess."""
        return replace(self, guess=None, reason=ParseFailure.TRUNCATED)


def parse(text: str) -> Parsed:
    """The guess of an answer, or the named reason why there is none.

    text: any string, of any length; time is linear in it. Never raises.
    """
    start = text.rfind(CLOSE_THINK)
    start = 0 if start < 0 else start + len(CLOSE_THINK)
    opens, closes = text.count(OPEN_GUESS, start), text.count(CLOSE_GUESS, start)
    unclosed_think = text.find(OPEN_THINK, start) >= 0
    if not text.strip(SURROUNDING_WHITESPACE):
        found: str | ParseFailure = ParseFailure.EMPTY
    elif unclosed_think:
        found = ParseFailure.UNCLOSED_THINK
    elif opens == closes == 0:
        inside = text.find(OPEN_GUESS, 0, start) >= 0
        found = ParseFailure.GUESS_INSIDE_THINK if inside else ParseFailure.NO_GUESS_TAG
    else:
        found = _between_tags(text, start, opens, closes)
    failure = found if isinstance(found, ParseFailure) else None
    return Parsed(
        guess=found if failure is None else None,
        reason=failure,
        open_tags=opens,
        close_tags=closes,
        closed_thinks=text.count(CLOSE_THINK),
        unclosed_think=unclosed_think,
    )


def _between_tags(text: str, start: int, opens: int, closes: int) -> str | ParseFailure:
    """The word between the guess tags after start, where at least one of them is."""
    if opens == 0:
        return ParseFailure.UNOPENED_GUESS
    if closes == 0:
        return ParseFailure.UNCLOSED_GUESS
    begin = text.find(OPEN_GUESS, start) + len(OPEN_GUESS)
    end = text.find(CLOSE_GUESS, start)
    if opens > 1 and 0 <= text.find(OPEN_GUESS, begin) < end:
        return ParseFailure.NESTED_GUESSES
    if opens > 1 or closes > 1:
        return ParseFailure.SEVERAL_GUESSES
    if end < begin:
        return ParseFailure.UNOPENED_GUESS
    word = text[begin:end].strip(SURROUNDING_WHITESPACE)
    # isalpha() alone accepts Cyrillic and full-width letters.
    if word and not (word.isascii() and word.isalpha()):
        return ParseFailure.NOT_ASCII_LETTERS
    return word.lower() if len(word) == WORD_LENGTH else ParseFailure.NOT_FIVE_LETTERS
