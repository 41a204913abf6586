"""Where metrics and texts go besides the run folder."""

from __future__ import annotations

from typing import Any, Protocol


class Reporter(Protocol):
    """Where metrics and texts go besides the run folder."""

    def metrics(self, values: dict[str, float], step: int) -> None: ...

    def text(self, tag: str, markdown: str, step: int) -> None: ...

    def continue_from(self, records: list[dict[str, Any]]) -> None:
        """Be told what was logged before a resume, oldest first."""
        ...
