"""Whether a run is like others of the same settings: bands of their metrics, and where it leaves.

A band is the 99 % prediction interval of one more run, from a few seeds. It knows the noise of a
step and of a seed, and nothing of other settings, other hardware or a longer run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Values = np.ndarray[Any, np.dtype[np.float64]]
Curve = Mapping[int, float]  # step -> value of one metric

LEVEL = 0.99
LEAST_SEEDS = 3
_AROUND = 2  # neighbouring values on each side, whose spread over seeds counts, too
# What is compared, if both have it: what most people look at, then what explains it.
METRICS = (
    "val/win_rate",
    "train/win_rate",
    "reward/mean",
    "policy/surprise",
    "skill/bits_ratio",
    "skill/consistency",
)


@dataclass(frozen=True)
class Band:
    """Where one more run should be, at each step that all seeds have."""

    metric: str
    seeds: int
    steps: Sequence[int]
    low: Values
    high: Values


@dataclass(frozen=True)
class Exit:
    """The first step at which a run is outside a band to stay."""

    step: int
    value: float
    low: float
    high: float


def curve_of(rows: Sequence[Mapping[str, Any]], metric: str) -> dict[int, float]:
    """A metric's finite values by step."""
    values = {row["step"]: row.get(metric) for row in rows if "step" in row}
    return {
        int(step): float(value)
        for step, value in values.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    }


def band_of(metric: str, curves: Sequence[Curve]) -> Band | None:
    """The prediction interval of one more run: mean +- t s sqrt(1 + 1/n), n seeds.

    s: the deviation between seeds, of the value and its two neighbours on each side. They depend on
    each other, so t has 2 (n - 1) degrees of freedom, as if they were two. A share stays in 0..1.
    None with fewer than three seeds, or without a step that all have.
    """
    from scipy.stats import t

    overlap = set.intersection(*map(set, curves)) if len(curves) >= LEAST_SEEDS else set()
    steps = sorted(overlap)
    if not steps:
        return None
    values = np.array([[curve[step] for step in steps] for curve in curves])  # [n, steps]
    seeds = len(values)
    variance = values.var(axis=0, ddof=1)
    means = [variance[max(0, i - _AROUND) : i + _AROUND + 1].mean() for i in range(len(steps))]
    half = t.ppf((1 + LEVEL) / 2, 2 * (seeds - 1)) * np.sqrt(np.array(means) * (1 + 1 / seeds))
    low, high = values.mean(axis=0) - half, values.mean(axis=0) + half
    if metric.endswith("win_rate"):
        low, high = low.clip(0, 1), high.clip(0, 1)
    return Band(metric, seeds, steps, low, high)


def find_exit(band: Band, curve: Curve) -> Exit | None:
    """Where a curve leaves a band: two values in a row on one side, or the last one, are outside.

    A single value may be outside by chance: of a hundred one is.
    """
    indices = [i for i, step in enumerate(band.steps) if step in curve]
    sides = []
    for i in indices:
        value = curve[band.steps[i]]
        sides.append(int(value > band.high[i]) - int(value < band.low[i]))
    for i, side, after in zip(indices, sides, [*sides[1:], *sides[-1:]], strict=True):
        if side and after == side:
            step = band.steps[i]
            return Exit(step, curve[step], float(band.low[i]), float(band.high[i]))
    return None
