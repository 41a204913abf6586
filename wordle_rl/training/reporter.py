"""The protocol of loggers that get a run's metrics, texts and tables, besides its folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from wordle_rl.evaluation.boards import GameTable


class Reporter(Protocol):
    """Receives a run's metrics, texts and tables, such as for TensorBoard."""

    def metrics(self, values: dict[str, float], step: int) -> None: ...

    def text(self, tag: str, markdown: str, step: int) -> None: ...

    def table(self, tag: str, table: GameTable, step: int) -> None: ...

    def histogram(self, tag: str, values: Sequence[float], step: int) -> None: ...

    def continue_from(self, records: list[dict[str, Any]]) -> None:
        """Take over what was logged before a resume, oldest record first."""
        ...
