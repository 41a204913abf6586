"""What is needed of a tokenizer."""

from __future__ import annotations

from typing import Any, Protocol


class Tokenizer(Protocol):
    """What is needed of a tokenizer; the backends hand in the real one."""

    @property
    def pad_id(self) -> int: ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of text, special tokens recognised, none added."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of an answer's ids, without the stop id that ended it.

        Any other special token, and an id that is no token, is in the text by name, so that it can
        neither be part of a guess nor be overlooked.
        """
        ...

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> str:
        """The chat template's text up to where the assistant's next answer begins.

        Raises ValueError for messages or tools that the template refuses.
        """
        ...
