"""Reads the guess in an answer: `<think>...</think><guess>crane</guess>`, thinking optional.

Takes linear time on any input: only str.find, str.count and str.strip, no regular expressions.
Tags are lower case and exact. Only the text after the last `</think>` counts, so a thought never
holds a guess, and its opening tag may be part of the prompt. The word alone is allowed between the
guess tags: spaces and line breaks are refused like any other character.

Where a guess is a tool call, the answer is that of Qwen2.5 and Hermes, by the same rules:
<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from wordle_rl.words.lists import WORD_LENGTH

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_GUESS, CLOSE_GUESS = "<guess>", "</guess>"
OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
NAME, ARGUMENT = "guess", "word"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Guess the secret word.",
        "parameters": {
            "type": "object",
            "properties": {
                ARGUMENT: {"type": "string", "description": "A five-letter English word."}
            },
            "required": [ARGUMENT],
        },
    },
}
_LONGEST_CALL = 1_000  # characters; longer ones are refused, which bounds JSON's nesting
# str.strip() without an argument would also take non-breaking spaces and other look-alikes.
WHITE_SPACE = " \t\r\n"


class ParseFailure(StrEnum):
    """Why no guess could be read. For tool calls, the guess tags are a call's."""

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

    def truncated(self) -> Parsed:
        """The result for an answer that hit its token limit, which never holds a guess."""
        return replace(self, guess=None, reason=ParseFailure.TRUNCATED)


def thought_of(text: str) -> str:
    """An answer up to the end of its last think block, line breaks behind it included."""
    _, tag, rest = text.rpartition(CLOSE_THINK)
    return text[: len(text) - len(rest.lstrip("\r\n"))] if tag else ""


def call_message(word: str) -> dict[str, Any]:
    """The assistant's message that guesses a word by calling the tool, for chat templates."""
    function = {"name": NAME, "arguments": {ARGUMENT: word}}
    calls = [{"type": "function", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def parse(text: str) -> Parsed:
    """The guess of an answer, or the named reason why there is none. Never raises."""
    return read_tagged(text, OPEN_GUESS, CLOSE_GUESS, as_guess)


def parse_spelled(text: str) -> Parsed:
    """As parse, where blanks may be between the tags and the letters of the guess."""
    return read_tagged(text, OPEN_GUESS, CLOSE_GUESS, lambda part: as_guess(part.replace(" ", "")))


def parse_call(text: str) -> Parsed:
    """As parse, where the guess is a tool call."""
    return read_tagged(text, OPEN_CALL, CLOSE_CALL, _guess_of_call)


def read_tagged(
    text: str, opening: str, closing: str, read: Callable[[str], str | ParseFailure]
) -> Parsed:
    """The guess between two tags, of which there must be one pair. read: reads the part between."""
    value = _between_tags(text, opening, closing)
    if not isinstance(value, ParseFailure):
        value = read(value)
    failed = isinstance(value, ParseFailure)
    return Parsed(
        guess=None if failed else value, reason=value if failed else None, thought=thought_of(text)
    )


def _between_tags(text: str, opening: str, closing: str) -> str | ParseFailure:
    """The text between the only pair of tags after the last think block."""
    start = len(text) - len(text.rpartition(CLOSE_THINK)[2])
    opens, closes = text.count(opening, start), text.count(closing, start)
    if not text.strip(WHITE_SPACE):
        return ParseFailure.EMPTY
    if text.find(OPEN_THINK, start) >= 0:
        return ParseFailure.UNCLOSED_THINK
    if opens == closes == 0:
        inside = text.find(opening, 0, start) >= 0
        return ParseFailure.GUESS_INSIDE_THINK if inside else ParseFailure.NO_GUESS_TAG
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
    return text[begin:end] if begin <= end else ParseFailure.UNOPENED_GUESS


def as_guess(content: str) -> str | ParseFailure:
    """Five ASCII letters in lower case, or what is wrong with the content."""
    # isalpha() alone accepts Cyrillic and full-width letters.
    if content and not (content.isascii() and content.isalpha()):
        return ParseFailure.NOT_ASCII_LETTERS
    return content.lower() if len(content) == WORD_LENGTH else ParseFailure.NOT_FIVE_LETTERS


def _guess_of_call(content: str) -> str | ParseFailure:
    """The guess in the text between the tags."""
    if len(content) > _LONGEST_CALL:
        return ParseFailure.MALFORMED_CALL
    try:
        call = json.loads(content, object_pairs_hook=_without_repeats)
        word = call["arguments"][ARGUMENT]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ParseFailure.MALFORMED_CALL
    if not isinstance(word, str) or call != {"name": NAME, "arguments": {ARGUMENT: word}}:
        return ParseFailure.MALFORMED_CALL
    return as_guess(word)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a repeated key is an error, as it could hold two guesses."""
    if len(mapping := dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return mapping
