"""What seeds buy: the differences that a study finds with a chance of 80 %.

How much differences vary from seed to seed and from secret to secret is known from an earlier run
of the study, or else from the study noise, whose model its own must be.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

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
_NOISE, _MODEL = "sweeps/noise", "mini"  # the study of runs that differ in their seed, its model


def tell_power(plan: StudyPlan) -> None:
    """Print what seeds buy in a grid, and which comparisons it leaves out."""
    points, settings = plan.points or [], plan.settings
    arms = list(dict.fromkeys(name_arm(point, plan.space) for point in points))
    if not arms:
        return
    comparisons = settings.analysis.comparisons
    pairs, left_out = pair_arms(arms, plan.space, settings.default, comparisons)
    for name in left_out:
        print(f"no comparison {name!r}: it names an arm that does not run")
    measure = MEASURES[settings.analysis.measure]
    places = (settings.place, ROOT / "sweeps" / settings.name)
    earlier = next((place for place in places if (place / RECORD).is_file()), None)
    known = settings.analysis.measure in ("wins", "guesses") and (ROOT / _NOISE / RECORD).is_file()
    if earlier is None and known:
        model = plan.compose(plan.overrides).get("model", {}).get("name", _MODEL)
        if model != _MODEL:
            told = "the resolutions on the page of a first run tell"
            print(f"what seeds buy is measured with model {_MODEL}; with {model}, {told}")
            return
        earlier = ROOT / _NOISE
    if earlier is not None:
        planned = len({point.get("seed") for point in points})
        _print_sizes(read_study(earlier), measure, planned, max(len(pairs), 1))


def _print_sizes(earlier: Study, measure: Measure, planned: int, comparisons: int) -> None:
    """Print the differences that numbers of seeds find, and what the planned ones find."""
    *spreads, own = pool_spreads(earlier, measure, [*_SEEDS, max(planned, 2)]) or [None]
    if own is None or not own.error:
        print(f"what seeds buy is not known: in {earlier.name} no two games or arms differ")
        return
    found = [find_resolution(spread, comparisons=1) for spread in spreads]
    found.append(find_resolution(own, comparisons=comparisons))
    *sizes, size = [f"{measure.scale * one:.{measure.digits}f}" for one in found]
    print(
        f"what seeds buy: {' / '.join(map(str, _SEEDS))} find a difference of {' / '.join(sizes)} "
        f"{measure.unit} with a chance of 80 % (as runs of the study {earlier.name} vary)"
    )
    if planned > 1:
        print(f"this study: {planned} seeds and {comparisons} comparisons find {size}")


def pool_spreads(earlier: Study, measure: Measure, counts: Sequence[int]) -> list[Spread]:
    """The spread of each number of seeds, from a study's mean difference to its first arm.

    None for a study without two arms of two seeds that have the measure.
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
