"""A tokenizer that needs no library."""

from __future__ import annotations

from typing import Any


class CharacterTokenizer:
    """A token is a character. The template is the test's own: messages -> text."""

    pad_id = 0

    def __init__(self, template: Any, stop: str = "]") -> None:
        self.render = template
        self.stop_ids = frozenset({ord(stop)})

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


def bracketed(messages: list[dict[str, Any]]) -> str:
    """A template that puts each message into brackets."""
    return "".join(f"[{message['content']}]" for message in messages)
