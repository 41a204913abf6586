"""Reads the guess in an answer: `<think>...</think><guess>crane</guess>`, thinking optional.

Takes linear time on any input: only str.find, str.count and str.strip, no regular expressions.
Tags are lower case and exact. Only the text after the last `</think>` counts, so a thought never
holds a guess, and its opening tag may be part of the prompt. The word alone is allowed between the
guess tags: spaces and line breaks are refused like any other character.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from wordle_rl.words.lists import WORD_LENGTH

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_GUESS, CLOSE_GUESS = "<guess>", "</guess>"
# str.strip() without an argument would also take non-breaking spaces and other look-alikes.
WHITE_SPACE = " \t\r\n"


class ParseFailure(StrEnum):
    """Why no guess could be read. For tool calls (tool_calls.py), the guess tags are a call's."""

    EMPTY = "empty"  # nothing but white space
    NO_GUESS_TAG = "no_guess_tag"  # no guess tag anywhere
    UNCLOSED_GUESS = "unclosed_guess"  # an opening guess tag only
    UNOPENED_GUESS = "unopened_guess"  # a closing guess tag only, or before the opening one
    GUESS_INSIDE_THINK = "guess_inside_think"  # guess tags only before the end of a think block
    UNCLOSED_THINK = "unclosed_think"  # the last think block never ends
    SEVERAL_GUESSES = "several_guesses"  # more than one opening or closing guess tag
    NESTED_GUESSES = "nested_guesses"  # a second opening guess tag before the first is closed
    NOT_ASCII_LETTERS = "not_ascii_letters"  # anything but a-z and A-Z inside the tag
    NOT_FIVE_LETTERS = "not_five_letters"  # ASCII letters, but not five of them
    MALFORMED_CALL = "malformed_call"  # tool calls: not a JSON object with the tool and a word
    TRUNCATED = "truncated"  # the answer hit its token limit; set by the caller


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """The result of reading an answer; exactly one of guess and reason is None."""

    guess: str | None  # five lower-case ASCII letters
    reason: ParseFailure | None
    thought: str = ""  # the answer up to the end of its last think block
    open_tags: int = 0  # opening guess tags after the last closed think block
    close_tags: int = 0  # closing guess tags there
    closed_thinks: int = 0  # closing think tags in the whole answer
    unclosed_think: bool = False  # an opening think tag after the last closing one

    @classmethod
    def failed(cls, reason: ParseFailure) -> Parsed:
        """A failure, without anything else about the text."""
        return cls(guess=None, reason=reason)

    def truncated(self) -> Parsed:
        """The result for an answer that hit its token limit, which never holds a guess."""
        return replace(self, guess=None, reason=ParseFailure.TRUNCATED)


def thought_of(text: str) -> str:
    """An answer up to the end of its last think block, line breaks behind it included."""
    end = text.rfind(CLOSE_THINK)
    behind = "" if end < 0 else text[end + len(CLOSE_THINK) :]
    return "" if end < 0 else text[: len(text) - len(behind.lstrip("\r\n"))]


def parse(text: str) -> Parsed:
    """The guess of an answer, or the named reason why there is none.

    text: any string, of any length; time is linear in it. Never raises.
    """
    return read_tagged(text, OPEN_GUESS, CLOSE_GUESS, as_guess)


def parse_spelled(text: str) -> Parsed:
    """As parse, where blanks may be between the tags and the letters of the guess."""
    return read_tagged(text, OPEN_GUESS, CLOSE_GUESS, lambda part: as_guess(part.replace(" ", "")))


def read_tagged(
    text: str, opening: str, closing: str, read: Callable[[str], str | ParseFailure]
) -> Parsed:
    """The guess between two tags, of which there must be one pair. read: reads the part between."""
    start = text.rfind(CLOSE_THINK)
    start = 0 if start < 0 else start + len(CLOSE_THINK)
    opens, closes = text.count(opening, start), text.count(closing, start)
    unclosed_think = text.find(OPEN_THINK, start) >= 0
    if not text.strip(WHITE_SPACE):
        found: str | ParseFailure = ParseFailure.EMPTY
    elif unclosed_think:
        found = ParseFailure.UNCLOSED_THINK
    elif opens == closes == 0:
        inside = text.find(opening, 0, start) >= 0
        found = ParseFailure.GUESS_INSIDE_THINK if inside else ParseFailure.NO_GUESS_TAG
    else:
        found = _between_tags(text, start, (opening, opens), (closing, closes))
        found = found if isinstance(found, ParseFailure) else read(found)
    failure = found if isinstance(found, ParseFailure) else None
    return Parsed(
        guess=found if failure is None else None,
        reason=failure,
        thought=thought_of(text),
        open_tags=opens,
        close_tags=closes,
        closed_thinks=text.count(CLOSE_THINK),
        unclosed_think=unclosed_think,
    )


def _between_tags(
    text: str, start: int, opening_tags: tuple[str, int], closing_tags: tuple[str, int]
) -> str | ParseFailure:
    """The text between the tags after start. Each tag comes with its count, one of them above 0."""
    (opening, opens), (closing, closes) = opening_tags, closing_tags
    if opens == 0:
        return ParseFailure.UNOPENED_GUESS
    if closes == 0:
        return ParseFailure.UNCLOSED_GUESS
    begin = text.find(opening, start) + len(opening)
    end = text.find(closing, start)
    if opens > 1 and 0 <= text.find(opening, begin) < end:
        return ParseFailure.NESTED_GUESSES
    if opens > 1 or closes > 1:
        return ParseFailure.SEVERAL_GUESSES
    if end < begin:
        return ParseFailure.UNOPENED_GUESS
    return text[begin:end]


def as_guess(content: str) -> str | ParseFailure:
    """Five ASCII letters in lower case, or what is wrong with the content."""
    # isalpha() alone accepts Cyrillic and full-width letters.
    if content and not (content.isascii() and content.isalpha()):
        return ParseFailure.NOT_ASCII_LETTERS
    return content.lower() if len(content) == WORD_LENGTH else ParseFailure.NOT_FIVE_LETTERS
