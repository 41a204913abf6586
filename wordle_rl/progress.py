"""What a progress line or bar shows of a step's metrics, whichever backend draws it."""

from __future__ import annotations

import time
from collections.abc import Mapping

SHOWN = {  # name on the line -> metric
    "loss": "loss",
    "reward": "reward/mean",
    "win%": "train/win_rate",
    "val%": "val/win_rate",
    "no_spread%": "groups/zero_spread",
    "games/s": "games_per_second",
}


class Progress:
    """Keeps the last value of everything shown; validation does not happen at every step."""

    def __init__(self, first: int, end: int) -> None:
        """first: the first step of this run or of its resumption; end: how many there will be."""
        self._first, self._end = first, end
        self._begin = time.monotonic()
        self.shown: dict[str, float] = {}

    def update(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Everything shown after a step with these metrics; shares as percentages."""
        for name, metric in SHOWN.items():
            if metric in metrics:
                self.shown[name] = metrics[metric] * (100.0 if name.endswith("%") else 1.0)
        return self.shown

    def line(self, step: int) -> str:
        """The line after step number `step`, counted from 0, with the minutes that are left."""
        seconds = (time.monotonic() - self._begin) / (step + 1 - self._first)
        minutes = (self._end - step - 1) * seconds / 60
        shown = " ".join(f"{name}={value:.4g}" for name, value in self.shown.items())
        return f"step {step + 1} {shown} left={minutes:.1f}min"
