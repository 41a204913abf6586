"""Metrics of one update, added up over its micro-batches and over the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wordle_rl.policy.policy import LARGEST


@dataclass(kw_only=True)
class UpdateMetrics:
    """Running totals of one update."""

    tokens: float  # trained tokens
    loss: float = 0.0
    halved: int = 0  # how often micro-batches were halved because memory ran out
    sums: dict[str, float] = field(default_factory=dict)  # over trained tokens
    largest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LARGEST, 0.0))

    def reset(self) -> None:
        """Forget all micro-batches."""
        self.loss = 0.0
        self.sums.clear()
        self.largest = dict.fromkeys(LARGEST, 0.0)

    def add(self, loss: float, parts: Mapping[str, float]) -> None:
        """Add a micro-batch: its loss, and its sums and largest values by metric."""
        self.loss += loss
        for name, value in parts.items():
            if name in LARGEST:
                self.largest[name] = max(self.largest[name], value)
            else:
                self.sums[name] = self.sums.get(name, 0.0) + value

    def to_dict(self, *, grad_norm: float, skipped: bool) -> dict[str, float]:
        """What Policy.update() returns: sums become means over the trained tokens."""
        tokens = max(self.tokens, 1.0)
        metrics = {f"policy/{name}": value / tokens for name, value in self.sums.items()}
        metrics |= {f"policy/{name}": value for name, value in self.largest.items()}
        return metrics | {
            "loss": self.loss,
            "grad_norm": grad_norm,
            "update/skipped": float(skipped),
            "update/halved": float(self.halved),
        }


def merge_metrics(parts: Sequence[UpdateMetrics]) -> UpdateMetrics:
    """The metrics of one update whose batch was shared by several processes."""
    names = dict.fromkeys(name for part in parts for name in part.sums)
    return UpdateMetrics(
        tokens=sum((part.tokens for part in parts), 0.0),
        loss=sum((part.loss for part in parts), 0.0),
        halved=sum(part.halved for part in parts),
        sums={name: sum((part.sums.get(name, 0.0) for part in parts), 0.0) for name in names},
        largest={name: max(part.largest[name] for part in parts) for name in LARGEST},
    )
