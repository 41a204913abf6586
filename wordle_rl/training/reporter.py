"""The protocol of loggers that get a run's metrics and texts, besides its folder."""

from __future__ import annotations

from typing import Any, Protocol


class Reporter(Protocol):
    """Receives a run's metrics and texts, such as for TensorBoard."""

    def metrics(self, values: dict[str, float], step: int) -> None: ...

    def text(self, tag: str, markdown: str, step: int) -> None: ...

    def continue_from(self, records: list[dict[str, Any]]) -> None:
        """Take over what was logged before a resume, oldest record first."""
        ...
