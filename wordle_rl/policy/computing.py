"""How a process computes: its precision and CPU threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Computing:
    """How a policy computes.

    reasons: a sentence on each choice that was made on this machine. threads: None when the backend
    has no CPU threads to choose. gpu: the name of a CUDA device, if it computes.
    """

    precision: Precision
    reasons: tuple[str, ...] = ()
    threads: int | None = None
    gpu: str | None = None

    def with_notes(self, notes: Iterable[str]) -> Computing:
        """The same with more sentences for the user."""
        return replace(self, reasons=(*self.reasons, *notes))

    def record(self) -> dict[str, Any]:
        """The entry in the run's manifest."""
        return asdict(self) | {"reasons": list(self.reasons)}
