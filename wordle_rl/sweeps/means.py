"""Means over seeds with 95 % intervals: Student's t, exact for any number of seeds."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_COVERAGE = 0.95  # of an interval
_HALVINGS = 60  # of a quarter turn, which reaches the last digits of a double


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over seeds with its 95 % interval."""

    mean: float
    half: float | None  # half of the interval; None for one seed
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Mean | None:
        """The mean of the values that are not None, or None without any."""
        given = [value for value in values if value is not None]
        if not given:
            return None
        half = None
        if len(given) > 1:
            half = t_quantile(len(given) - 1) * statistics.stdev(given) / math.sqrt(len(given))
        return cls(mean=statistics.fmean(given), half=half, count=len(given))


def format_mean(
    mean: Mean | None, *, scale: float = 1.0, digits: int = 1, sign: Literal["", "+"] = ""
) -> str:
    if mean is None:
        return "-"
    half = "" if mean.half is None else f" ± {scale * mean.half:.{digits}f}"
    return f"{scale * mean.mean:{sign}.{digits}f}{half}"


@functools.cache
def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t. freedom: degrees of freedom, 1 or more."""
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = _probability_inside(middle, freedom)
        low, high = (middle, high) if inside < _COVERAGE else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _probability_inside(angle: float, freedom: int) -> float:
    """The probability that |t| is below sqrt(freedom) * tan(angle).

    Source: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 (odd) and 26.7.4 (even).
    """
    odd, cosine = freedom % 2, math.cos(angle)
    term, total = cosine if odd else 1.0, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    part = math.sin(angle) * total
    return 2 / math.pi * (angle + part) if odd else part
