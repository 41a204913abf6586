"""An engine that keeps a record of its own of what passes through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wordle_rl.policy.engine import Completion


@dataclass
class Spy:
    """Stands between the driver and the engine, and keeps what passes: the independent record."""

    inner: Any
    fed: dict[int, list[tuple[list[int], bool]]] = field(default_factory=dict)  # row -> ids, drawn
    history: list[list[tuple[list[int], bool]]] = field(default_factory=list)  # of released rows

    def open(self, n: int) -> list[int]:
        rows = self.inner.open(n)
        self.fed |= {row: [] for row in rows}
        return rows

    def fork(self, row: int, n: int) -> list[int]:
        rows = self.inner.fork(row, n)
        self.fed |= {r: list(self.fed[row]) for r in rows}
        return rows

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> list[bool]:
        fits = self.inner.extend(rows, ids)
        for row, new, fit in zip(rows, ids, fits, strict=True):
            if fit:
                self.fed[row].append((list(new), False))
        return fits

    def decode(self, rows: Sequence[int], *rest: Any) -> list[Completion]:
        drawn = self.inner.decode(rows, *rest)
        for row, completion in zip(rows, drawn, strict=True):
            self.fed[row].append((list(completion.ids), True))
        return drawn

    def release(self, rows: Sequence[int]) -> None:
        self.history += [self.fed.pop(row) for row in rows]
        self.inner.release(rows)
