"""What a run says on the terminal about each step, whatever its backend."""

from __future__ import annotations

import time
from collections.abc import Mapping

_SHOWN = {  # name on the terminal -> metric
    "loss": "loss",
    "reward": "reward/mean",
    "win%": "train/win_rate",
    "val%": "val/win_rate",
    "no_spread%": "groups/zero_spread",
    "games/s": "games_per_second",
}


def shown(metrics: Mapping[str, float]) -> dict[str, float]:
    """The few metrics that are shown, by the name that they have there."""
    return {
        name: metrics[metric] * (100.0 if name.endswith("%") else 1.0)
        for name, metric in _SHOWN.items()
        if metric in metrics
    }


class Lines:
    """Prints a line per step, with the time that is left."""

    def __init__(self, steps: int) -> None:
        """steps: how many are to come."""
        self._steps, self._done, self._begin = steps, 0, time.monotonic()

    def step(self, number: int, values: Mapping[str, float]) -> None:
        self._done += 1
        left = (self._steps - self._done) * (time.monotonic() - self._begin) / self._done / 60
        text = " ".join(f"{name}={value:.4g}" for name, value in values.items())
        print(f"step {number} {text} left={left:.1f}min", flush=True)
