"""The guess as a tool call: the tool's description, and a strict reader of answers that call it.

Reads the format of Qwen2.5 and Hermes, <tool_call>{"name": "guess", "arguments": {"word": "crane"}}
</tool_call>, by the rules of parser.py: linear time, only after the last closed think block, one
call of five ASCII letters in any case.
"""

from __future__ import annotations

import json
from typing import Any

from wordle_rl.prompts.parser import Parsed, ParseFailure, as_guess, read_tagged

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
_LONGEST = 1_000  # characters of a call; longer ones are refused, which bounds JSON's nesting


def call_message(word: str) -> dict[str, Any]:
    """The assistant's message that guesses a word, as chat templates expect it."""
    function = {"name": NAME, "arguments": {ARGUMENT: word}}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": function}],
    }


def parse_call(text: str) -> Parsed:
    """The guess of an answer that calls the tool, or the named reason why there is none.

    text: any string, of any length; time is linear in it. Never raises.
    """
    return read_tagged(text, OPEN_CALL, CLOSE_CALL, _guess_of_call)


def _guess_of_call(content: str) -> str | ParseFailure:
    """The guess in the text between the tags."""
    if len(content) > _LONGEST:
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
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return found
