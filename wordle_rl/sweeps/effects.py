"""Differences between the arms of a study, with an interval, a verdict and the study's resolution.

Arms are compared at equal seeds and equal secrets. The standard error is clustered both by seed and
by secret, because all games of a seed share one training run, and all games on a secret share its
difficulty (Cameron, Gelbach & Miller 2011, doi.org/10.1198/jbes.2010.07136). Student's t has the
degrees of freedom of Satterthwaite's approximation: few where seeds differ most, more where secrets
do. Holm's correction is over all comparisons of the study.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wordle_rl.sweeps.measures import Measure

ERROR = 0.05  # chance that a study of equal arms calls any of them different
POWER = 0.8  # chance to find a difference of the size that the resolution names
UNDECIDED = "undecided"
Cells = Mapping[tuple[int, str], float]  # a measure at a seed and a secret, "" for a whole trial


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A mean difference between two arms, and how well it is known."""

    mean: float
    error: float  # standard error
    seed_variance: float  # between seeds, of the difference's mean over secrets
    seeds: int
    secrets: int

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard error."""
        by_seed = self.seed_variance / self.seeds
        rest = max(self.error**2 - by_seed, 0.0)
        if rest == 0.0:
            return self.seeds - 1
        parts = by_seed**2 / (self.seeds - 1) + rest**2 / max(self.secrets - 1, 1)
        return (by_seed + rest) ** 2 / parts


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A comparison with its verdict. Differences are in the measure's unit."""

    name: str
    difference: float
    low: float  # ends of the interval at the level that Holm's correction leaves
    high: float
    p: float  # after the correction
    verdict: str
    resolution: float  # difference that would be found with a chance of 80 %
    seeds: int
    secrets: int


def measure_spread(one: Cells, other: Cells) -> Spread | None:
    """The difference `one` - `other` over common seeds and secrets; None with fewer than 2 seeds.

    A secret that an arm did not play at some seed is left out there.
    """
    common = sorted(one.keys() & other.keys())
    seeds, by_seed = np.unique([seed for seed, _ in common], return_inverse=True)
    if len(seeds) < 2:
        return None
    secrets, by_secret = np.unique([secret for _, secret in common], return_inverse=True)
    gaps = np.array([one[cell] - other[cell] for cell in common])
    means = np.array([gaps[by_seed == number].mean() for number in range(len(seeds))])
    between = float(means.var(ddof=1))
    error = math.sqrt(between / len(seeds))
    if len(secrets) > 1 and gaps.any():
        both = np.column_stack([by_seed, by_secret])
        # By chance the error of both may be smaller than the error of one, which is then better.
        error = max(error, *(_clustered_error(gaps, groups) for groups in (by_secret, both)))
    return Spread(
        mean=float(gaps.mean()), error=error, seed_variance=between, seeds=len(seeds),
        secrets=len(secrets),
    )  # fmt: skip


def _clustered_error(gaps: NDArray[np.float64], groups: NDArray[np.intp]) -> float:
    """Standard error of the mean.

    groups: the cluster of each number, or a column for each way in which it is clustered.
    """
    from statsmodels.regression.linear_model import OLS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few clusters, which the t distribution allows for
        fit = OLS(gaps, np.ones_like(gaps)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    variance = float(np.asarray(fit.cov_params())[0, 0])
    return math.sqrt(variance) if variance > 0 else 0.0


def judge(spreads: Mapping[str, Spread], measure: Measure, margin: float) -> list[Effect]:
    """The effects of a study's comparisons.

    margin: differences up to it count as none, in the measure's unit.
    """
    from scipy.stats import t
    from statsmodels.stats.multitest import multipletests

    if not spreads:
        return []
    alone = [_find_p(spread) for spread in spreads.values()]
    found: Any = multipletests(alone, alpha=ERROR, method="holm")
    rejected, corrected = found[0].tolist(), found[1].tolist()
    levels = _holm_levels(alone, rejected)
    effects = []
    for number, (name, spread) in enumerate(spreads.items()):
        half = float(t.ppf(1 - levels[number] / 2, spread.freedom)) * spread.error
        low, high = (measure.scale * (spread.mean + way * half) for way in (-1, 1))
        verdict = UNDECIDED
        if rejected[number]:
            verdict = measure.higher if spread.mean > 0 else measure.lower
        elif -margin <= low and high <= margin:
            verdict = f"equal within {margin:g}"
        effects.append(
            Effect(
                name=name, difference=measure.scale * spread.mean, low=low, high=high,
                p=corrected[number], verdict=verdict, seeds=spread.seeds,
                secrets=spread.secrets,
                resolution=measure.scale * find_resolution(spread, comparisons=len(spreads)),
            )
        )  # fmt: skip
    return effects


def find_resolution(spread: Spread, *, comparisons: int) -> float:
    """The difference that a study finds with a chance of 80 %, in the unit of the spread's error.

    comparisons: the study's, whose first step of Holm's correction the difference must pass.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if spread.error == 0.0:
        return 0.0
    least = t.ppf(1 - ERROR / comparisons / 2, spread.freedom)
    # The chance that a t this many standard errors off passes the least one.
    size: Any = brentq(lambda away: nct.sf(least, spread.freedom, away) - POWER, 0.0, 10 * least)
    return float(size) * spread.error


def _find_p(spread: Spread) -> float:
    """The chance of such a mean if there were no difference."""
    from scipy.stats import t

    if spread.error == 0.0:
        return 0.0 if spread.mean else 1.0
    return float(2 * t.sf(abs(spread.mean) / spread.error, spread.freedom))


def _holm_levels(p: Sequence[float], rejected: Sequence[bool]) -> list[float]:
    """The level at which each comparison was tested, so that interval and verdict agree."""
    order = sorted(range(len(p)), key=lambda number: p[number])
    levels = [0.0] * len(p)
    passed = 0
    for number in order:
        levels[number] = ERROR / (len(p) - passed)
        passed += bool(rejected[number])
    return levels
