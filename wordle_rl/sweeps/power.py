"""What seeds buy: the differences that a study finds with a chance of 80 %.

How much differences vary from seed to seed and from secret to secret is known from an earlier run
of the study, or else from the study noise, whose model its own must be.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.results import RECORD, SEARCH
from wordle_rl.sweeps.space import name_arm
from wordle_rl.sweeps.verdicts import (
    MEASURES,
    Measure,
    Spread,
    Study,
    find_resolution,
    measure_cells,
    measure_spread,
    pair_arms,
    pick_arm,
    read_study,
)

_SEEDS = (2, 3, 4, 6, 8)
_MODEL = "mini"  # of the study noise


def tell_power(plan: StudyPlan) -> None:
    """Print what seeds buy in a grid, and which comparisons it leaves out."""
    arms = list(dict.fromkeys(name_arm(point, plan.space) for point in plan.points or ()))
    if not arms:
        return
    settings = plan.settings
    asked = settings.analysis.comparisons
    pairs, left_out = pair_arms(arms, plan.space, settings.default, asked)
    for name in left_out:
        print(f"no comparison {name!r}: it names an arm that does not run")
    if (earlier := _find_earlier(plan)) is not None:
        _print_sizes(plan, read_study(earlier), max(len(pairs), 1))


def _find_earlier(plan: StudyPlan) -> Path | None:
    """An earlier run of a study, or else the study noise if that is of its model."""
    settings, noise = plan.settings, ROOT / "sweeps/noise"
    for place in (settings.place, ROOT / "sweeps" / settings.name):
        if (place / RECORD).is_file():
            return place
    if settings.analysis.measure not in ("wins", "guesses") or not (noise / RECORD).is_file():
        return None
    model = plan.compose(plan.overrides).get("model", {}).get("name", _MODEL)
    if model == _MODEL:
        return noise
    told = "the resolutions on the page of a first run tell"
    print(f"what seeds buy is measured with model {_MODEL}; with {model}, {told}")
    return None


def _print_sizes(plan: StudyPlan, earlier: Study, comparisons: int) -> None:
    """Print the differences that numbers of seeds find, and what the planned ones find."""
    measure = MEASURES[plan.settings.analysis.measure]
    planned = len({point.get("seed") for point in plan.points or ()})
    spreads = pool_spreads(earlier, measure, [*_SEEDS, max(planned, 2)])
    if not spreads or not spreads[-1].error:
        print(f"what seeds buy is not known: in {earlier.name} no two games or arms differ")
        return
    counts = [*(1 for _ in _SEEDS), comparisons]
    pairs = zip(spreads, counts, strict=True)
    found = [find_resolution(spread, comparisons=count) for spread, count in pairs]
    *sizes, size = [f"{measure.scale * one:.{measure.digits}f}" for one in found]
    print(
        f"what seeds buy: {' / '.join(map(str, _SEEDS))} find a difference of {' / '.join(sizes)} "
        f"{measure.unit} with a chance of 80 % (as runs of the study {earlier.name} vary)"
    )
    if planned > 1:
        print(f"this study: {planned} seeds and {comparisons} comparisons find {size}")


def pool_spreads(earlier: Study, measure: Measure, counts: Sequence[int]) -> list[Spread]:
    """The spread of each number of seeds, from a study's mean difference to its first arm.

    None at all for a study without two arms of two seeds that have the measure.
    """
    search, cells = earlier.select(SEARCH), measure_cells(earlier, SEARCH, measure)
    arms = search[search.state == "complete"].arm.unique()
    first, *others = [pick_arm(cells, arm) for arm in arms] or [cells]
    spreads = [s for other in others if (s := measure_spread(first, other)) is not None]
    if not spreads:
        return []
    least = min(spreads, key=lambda spread: spread.seeds)
    variance = statistics.fmean(spread.seed_variance for spread in spreads)
    squared = statistics.fmean(spread.error**2 for spread in spreads)
    rest = max(squared - variance / least.seeds, 0.0)  # which more seeds do not take away
    return [
        replace(
            least, mean=0.0, error=math.sqrt(variance / n + rest), seed_variance=variance, seeds=n
        )
        for n in counts
    ]
