"""What the rest of the program needs of a tokenizer."""

from __future__ import annotations

from typing import Any, Protocol


class Tokenizer(Protocol):
    """Turns text into token ids and back. The backends provide the implementation."""

    @property
    def pad_id(self) -> int: ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Recognises special tokens and adds none."""
        ...

    def decode(self, ids: list[int]) -> str:
        """The text of an answer's ids, without the stop id that ended it.

        Other special tokens, and ids that are not tokens, appear in the text by name. So they can
        neither be part of a guess nor go unnoticed.
        """
        ...

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> str:
        """The text of the chat template, up to where the assistant's next answer begins.

        Raises ValueError for messages or tools that the template refuses.
        """
        ...
