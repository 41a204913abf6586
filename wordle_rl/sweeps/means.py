"""Means over seeds with 95 % intervals: Student's t, exact for any number of seeds."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_COVERAGE = 0.95  # of an interval


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
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return float(stdtrit(freedom, (1 + _COVERAGE) / 2))
