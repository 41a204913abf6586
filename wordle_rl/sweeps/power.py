"""Power: the difference that a study will find with a chance of 80 %, told before it starts.

A pilot is a study of the same regime, whose arms ran with several seeds. How much its differences
vary from seed to seed and from secret to secret tells what the planned seeds can resolve.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from wordle_rl.runs.config import compose_from_conf
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF, ROOT
from wordle_rl.sweeps.analysis import (
    MEASURES,
    Measure,
    Spread,
    Study,
    find_resolution,
    key_of,
    list_pairs,
    measure_cells,
    measure_spread,
    pick_arm,
    read_study,
)
from wordle_rl.sweeps.plan import add_arms
from wordle_rl.sweeps.records import RECORD, SEARCH
from wordle_rl.sweeps.settings import StudySettings, build_study_settings
from wordle_rl.sweeps.space import Params, list_grid_points, parse_params


@dataclass(frozen=True, kw_only=True)
class Power:
    """What a planned study can find."""

    measure: Measure
    pilot: str
    resolution: float  # in the measure's unit
    effect: float | None  # that the study asks about
    seeds: int
    comparisons: int
    spread: Spread  # of one planned comparison

    @property
    def enough(self) -> bool:
        return self.effect is None or self.resolution <= self.effect

    def format_lines(self) -> list[str]:
        unit, scale, digits = self.measure.unit, self.measure.scale, self.measure.digits + 1
        between = scale * math.sqrt(self.spread.seed_variance)
        asked = "The study names no effect that it asks about."
        if self.effect is not None:
            verdict = "enough" if self.enough else "not enough"
            asked = f"The study asks about {self.effect:g} {unit}, so that is {verdict}."
        return [
            f"measure: {self.measure.title}",
            f"pilot {self.pilot}: differences between two arms vary by {between:.{digits}f} {unit} "
            "from seed to seed (standard deviation)",
            f"planned: {self.seeds} seeds, {self.spread.secrets} secrets, {self.comparisons} "
            f"comparisons, standard error {scale * self.spread.error:.{digits}f} {unit}",
            f"resolution: a difference of {self.resolution:.{digits}f} {unit} is found with a "
            f"chance of 80 %. {asked}",
        ]


def plan_power(
    points: Sequence[Params], default: Params | None, analysis: Mapping[str, Any], pilot: Study
) -> Power:
    """The power of a study of these points, seeds included. Raises ConfigError and ValueError."""
    measure = MEASURES[analysis.get("measure") or "wins"]
    count = len({point.get("seed") for point in points})
    if count < 2:
        raise ConfigError(
            "hydra.sweeper.params.seed must be a choice of two seeds or more, which a study's "
            "power depends on"
        )
    found = [{name: v for name, v in point.items() if name != "seed"} for point in points]
    arms = [*{key_of(arm): arm for arm in found}.values()]
    pairs = list_pairs(arms, default, analysis.get("comparisons") or {})
    known = _pool(pilot, measure)
    rest = max(known.error**2 - known.seed_variance / known.seeds, 0.0)
    error = math.sqrt(known.seed_variance / count + rest)
    spread = replace(known, error=error, seeds=count)
    number = max(len(pairs), 1)
    return Power(
        measure=measure, pilot=pilot.name, effect=analysis.get("effect"), seeds=count,
        comparisons=number, spread=spread,
        resolution=measure.scale * find_resolution(spread, comparisons=number),
    )  # fmt: skip


def _pool(pilot: Study, measure: Measure) -> Spread:
    """The mean variances of all differences between the first arm of a pilot and its others."""
    search = pilot.select(SEARCH)
    arms = search[search.state == "complete"].drop_duplicates("key").arm
    cells = measure_cells(pilot, SEARCH, measure)
    first, *others = [pick_arm(cells, arm) for arm in arms] or [cells]
    spreads = [s for other in others if (s := measure_spread(first, other)) is not None]
    if not spreads:
        raise ValueError(
            f"study {pilot.name}: a pilot must have two arms with two seeds or more that both have "
            f"{measure.title}"
        )
    least = min(spreads, key=lambda spread: spread.seeds)
    return Spread(
        mean=0.0, seeds=least.seeds, secrets=least.secrets,
        error=math.sqrt(statistics.fmean(s.error**2 for s in spreads)),
        seed_variance=statistics.fmean(s.seed_variance for s in spreads),
    )  # fmt: skip


def refuse_underpowered(power: Power, name: str) -> None:
    """Raise ConfigError for a study that can only find greater differences than it asks about."""
    if power.enough:
        return
    unit = power.measure.unit
    raise ConfigError(
        f"study {name} asks about a difference of {power.effect:g} {unit}, and {power.seeds} seeds "
        f"find {power.resolution:.{power.measure.digits}f} {unit} with a chance of 80 %: give more "
        "seeds, fewer comparisons or a greater hydra.sweeper.analysis.effect, or start it anyway "
        "with hydra.sweeper.analysis.underpowered=true"
    )


def forecast(name: str) -> Power:
    """The power of the study in a folder, or in conf/sweep. Raises ConfigError or ValueError.

    A study that ran is its own pilot.
    """
    folder = Path(name)
    if (folder / RECORD).is_file():
        study = read_study(folder)
        points = [
            {**row.arm, "seed": row.seed} for row in study.select(SEARCH).itertuples()
        ]  # fmt: skip
        return plan_power(points, study.identity.get("default"), study.analysis, study)
    if name not in list_studies():
        raise ConfigError(
            f"{name}: neither the folder of a study, nor one of {', '.join(list_studies())}"
        )
    settings = _compose_study(name)
    pilot = find_pilot(settings.place, settings.analysis.pilot or settings.name)
    if settings.analysis.pilot is None and not (pilot / RECORD).is_file():
        raise ConfigError(
            f"study {settings.name} did not run, so conf/sweep/{settings.name}.yaml must name "
            "another one as its hydra.sweeper.analysis.pilot, whose trials tell how much seeds "
            "differ"
        )
    space, _ = parse_params(settings.params)
    points = list_grid_points(add_arms(settings, space))
    default: Any = settings.default
    return plan_power(points, default, asdict(settings.analysis), read_study(pilot))


def find_pilot(folder: Path, name: str) -> Path:
    """The shipped study of that name, or the one beside a study's folder."""
    shipped = ROOT / "sweeps" / name
    return shipped if shipped.is_dir() else folder.parent / name


def list_studies() -> list[str]:
    """The studies in conf/sweep."""
    return sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))


def _compose_study(name: str) -> StudySettings:
    with compose_from_conf():
        config = compose("config", overrides=[f"sweep={name}"], return_hydra_config=True)
    node: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    return build_study_settings(node)
