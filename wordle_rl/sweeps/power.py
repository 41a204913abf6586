"""Power: the difference that a study will find with a chance of 80 %, told before it starts.

A pilot is a study of the same regime, whose arms ran with several seeds. How much its differences
vary from seed to seed and from secret to secret tells what the planned seeds can resolve.
"""

import math
import statistics

from wordle_rl.runs.instantiate import ConfigError
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

_NOISE_MODEL = "mini"  # of the study noise


def check_power(plan: StudyPlan) -> None:
    """Say what a study can find, and which comparisons it leaves out.

    Raises ConfigError if it can find less than it asks about.
    """
    settings, analysis = plan.settings, plan.settings.analysis
    if not plan.points:
        return
    for name in list_pairs(plan)[1]:
        print(f"no comparison {name!r}: it names an arm that does not run")
    measure = MEASURES[analysis.measure]
    unit, digits = measure.unit, measure.digits + 1
    if analysis.measure in ("wins", "guesses") and (ROOT / "sweeps/noise" / RECORD).is_file():
        _print_what_seeds_buy(plan, measure)
    if analysis.pilot is None:
        return
    places = [ROOT / "sweeps" / analysis.pilot, settings.place.parent / analysis.pilot]
    pilot = next((p for p in places if p != settings.place and (p / RECORD).is_file()), None)
    if pilot is None:
        print(f"what this study can find is not known: its pilot {analysis.pilot} did not run")
        return
    spread, resolution = plan_power(plan, read_study(pilot))
    if not spread.error:
        print(f"what this study can find is not known: in {analysis.pilot} no two games differ")
        return
    between = measure.scale * math.sqrt(spread.seed_variance)
    own = {settings.name: "an earlier run of this study"}
    print(
        f"measure: {measure.title}\n{own.get(analysis.pilot, f'pilot {analysis.pilot}')}: "
        f"differences between two arms vary by {between:.{digits}f} {unit} "
        f"from seed to seed (standard deviation)\nresolution: {spread.seeds} seeds find a "
        f"difference of {resolution:.{digits}f} {unit} with a chance of 80 %"
    )
    if analysis.effect and resolution > analysis.effect and not analysis.underpowered:
        raise ConfigError(
            f"study {settings.name} asks about a difference of {analysis.effect:g} {unit}: give "
            "more seeds, fewer comparisons or a greater hydra.sweeper.analysis.effect, or start it "
            "anyway with hydra.sweeper.analysis.underpowered=true"
        )


def _print_what_seeds_buy(plan: StudyPlan, measure: Measure) -> None:
    """Print which differences so many seeds find with the model of the study noise."""
    model = plan.compose(plan.overrides).get("model", {}).get("name", _NOISE_MODEL)
    if model != _NOISE_MODEL:
        told = "hydra.sweeper.analysis.pilot=<an earlier study of it> tells"
        print(f"what seeds buy is measured with model {_NOISE_MODEL}; with {model}, {told}")
        return
    noise, seeds = read_study(ROOT / "sweeps/noise"), (2, 3, 4, 6, 8)
    spreads = (pool_spreads(noise, measure, count) for count in seeds)
    found = (measure.scale * find_resolution(spread, comparisons=1) for spread in spreads)
    sizes = " / ".join(f"{size:.{measure.digits}f}" for size in found)
    print(
        f"what seeds buy: {' / '.join(map(str, seeds))} find a difference of {sizes} "
        f"{measure.unit} with a chance of 80 % (study noise: model {_NOISE_MODEL}, 20 steps)"
    )


def list_pairs(plan: StudyPlan) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """The comparisons of a grid, and those of arms that do not run."""
    arms = list(dict.fromkeys(name_arm(point, plan.space) for point in plan.points or ()))
    return pair_arms(arms, plan.space, plan.settings.default, plan.settings.analysis.comparisons)


def plan_power(plan: StudyPlan, pilot: Study) -> tuple[Spread, float]:
    """The spread of one comparison, and the resolution of a grid, or ConfigError with one seed."""
    measure = MEASURES[plan.settings.analysis.measure]
    count = len({point.get("seed") for point in plan.points or ()})
    if count < 2:
        raise ConfigError(
            "hydra.sweeper.params.seed must be a choice of two seeds or more, which a study's "
            "power depends on; or set hydra.sweeper.analysis.pilot=null"
        )
    spread = pool_spreads(pilot, measure, count)
    count = max(len(list_pairs(plan)[0]), 1)
    return spread, measure.scale * find_resolution(spread, comparisons=count)


def pool_spreads(pilot: Study, measure: Measure, seeds: int) -> Spread:
    """The spread of so many seeds, from the means over a pilot's differences to its first arm.

    Raises ValueError for a pilot without two arms of two seeds.
    """
    search, cells = pilot.select(SEARCH), measure_cells(pilot, SEARCH, measure)
    arms = search[search.state == "complete"].arm.unique()
    first, *others = [pick_arm(cells, arm) for arm in arms] or [cells]
    spreads = [s for other in others if (s := measure_spread(first, other)) is not None]
    if not spreads:
        raise ValueError(
            f"study {pilot.name}: a pilot must have two arms with two seeds or more that both have "
            f"{measure.title}"
        )
    least = min(spreads, key=lambda spread: spread.seeds)
    seed_variance = statistics.fmean(s.seed_variance for s in spreads)
    squared = statistics.fmean(s.error**2 for s in spreads)
    rest = max(squared - seed_variance / least.seeds, 0.0)
    return Spread(
        mean=0.0,
        error=math.sqrt(seed_variance / seeds + rest),
        seed_variance=seed_variance,
        seeds=seeds,
        secrets=least.secrets,
    )
