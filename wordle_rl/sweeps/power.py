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
from wordle_rl.sweeps.record import RECORD, SEARCH
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
    read_study,
)

_SEEDS = (2, 3, 4, 6, 8)
_MODEL = "mini"  # of the study noise


def tell_power(plan: StudyPlan) -> None:
    """Print what seeds buy in a grid, and which comparisons it leaves out."""
    settings = plan.settings
    if plan.points is None:
        return
    arms = list(dict.fromkeys(name_arm(point, plan.space) for point in plan.points))
    pairs = settings.analysis.comparisons
    pairs, omissions = pair_arms(arms, plan.space, settings.default, pairs)
    for name in omissions:
        print(f"no comparison {name!r}: it names an arm that does not run")
    measure, folder = MEASURES[settings.analysis.measure], _find_earlier(plan)
    if folder is None:
        return
    study, seeds = read_study(folder), len({point.get("seed") for point in plan.points})
    spreads = pool_spreads(study, measure, [*_SEEDS, max(seeds, 2)])
    if not spreads or not spreads[-1].error:
        print(f"what seeds buy is not known: in {study.name} no two games or arms differ")
        return

    def tell(spread: Spread, comparisons: int) -> str:
        size = find_resolution(spread, comparisons=comparisons)
        return f"{measure.scale * size:.{measure.digits}f}"

    print(
        f"what seeds buy: {' / '.join(map(str, _SEEDS))} find a difference of "
        f"{' / '.join(tell(spread, 1) for spread in spreads[:-1])} {measure.unit} with a chance of "
        f"80 % (as runs of the study {study.name} vary)"
    )
    if seeds > 1 and pairs:
        effect = tell(spreads[-1], len(pairs))
        text = f"{len(pairs)} comparison{'s' if len(pairs) > 1 else ''}"
        print(f"this study: {seeds} seeds and {text} find {effect}, if its runs vary like those")


def _find_earlier(plan: StudyPlan) -> Path | None:
    """An earlier run of a study, or else the study noise if that is of its model."""
    settings, noise = plan.settings, ROOT / "sweeps/noise"
    for folder in (settings.place, ROOT / "sweeps" / settings.name):
        if (folder / RECORD).is_file():
            return folder
    if settings.analysis.measure not in ("wins", "guesses") or not (noise / RECORD).is_file():
        return None
    model = plan.compose(plan.overrides).get("model", {}).get("name", _MODEL)
    if model == _MODEL:
        return noise
    hint = "the resolutions on the page of a first run tell"
    print(f"what seeds buy is measured with model {_MODEL}; with {model}, {hint}")
    return None


def pool_spreads(earlier: Study, measure: Measure, counts: Sequence[int]) -> list[Spread]:
    """The spread of each number of seeds, from a study's mean difference to its first arm.

    None at all for a study without two arms of two seeds that have the measure.
    """
    trials, cells = earlier.select(SEARCH), measure_cells(earlier, SEARCH, measure)
    first, *others = [arm for arm in trials.arm.unique() if arm in cells] or [""]
    results = [measure_spread(cells[first], cells[other]) for other in others]
    spreads = [spread for spread in results if spread is not None]
    if not spreads:
        return []
    base = min(spreads, key=lambda spread: spread.seeds)
    variance = statistics.fmean(spread.seed_variance for spread in spreads)
    square = statistics.fmean(spread.error**2 for spread in spreads)
    rest = max(square - variance / base.seeds, 0.0)  # which more seeds do not take away
    return [
        replace(
            base, mean=0.0, error=math.sqrt(variance / n + rest), seed_variance=variance, seeds=n
        )
        for n in counts
    ]
