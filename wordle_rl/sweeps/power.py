"""Power: the difference that a study will find with a chance of 80 %, told before it starts.

A pilot is a study of the same regime, whose arms ran with several seeds. How much its differences
vary from seed to seed and from secret to secret tells what the planned seeds can resolve.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import OmegaConf
from optuna.distributions import CategoricalDistribution

from wordle_rl.runs.config import compose_from_conf
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF, ROOT
from wordle_rl.sweeps.comparisons import list_pairs, measure_cells
from wordle_rl.sweeps.effects import Spread, find_resolution, measure_spread
from wordle_rl.sweeps.measures import Measure, find_measure
from wordle_rl.sweeps.plan import add_arms
from wordle_rl.sweeps.records import read_record
from wordle_rl.sweeps.results import ReportError, Study
from wordle_rl.sweeps.settings import StudySettings, build_study_settings
from wordle_rl.sweeps.space import Space, list_grid_points, parse_params, same_params
from wordle_rl.sweeps.table import read_space


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
    space: Space, default: Mapping[str, Any] | None, analysis: Mapping[str, Any], pilot: Study
) -> Power:
    """The power of a study with this space. Raises ConfigError and ReportError."""
    measure = find_measure(analysis)
    seeds = space.get("seed")
    count = len(seeds.choices) if isinstance(seeds, CategoricalDistribution) else 0
    if count < 2:
        raise ConfigError(
            "hydra.sweeper.params.seed must be a choice of two seeds or more, which a study's "
            "power depends on"
        )
    others = {name: item for name, item in space.items() if name != "seed"}
    pairs = list_pairs(list_grid_points(others), default, analysis.get("comparisons") or {})
    known = _pool(pilot, measure)
    error = math.sqrt(known.seed_variance / count + max(
        known.error**2 - known.seed_variance / known.seeds, 0.0
    ))  # fmt: skip
    spread = Spread(mean=0.0, error=error, seed_variance=known.seed_variance, seeds=count,
                    secrets=known.secrets)  # fmt: skip
    number = max(len(pairs), 1)
    return Power(
        measure=measure, pilot=pilot.name, effect=analysis.get("effect"), seeds=count,
        comparisons=number, spread=spread,
        resolution=measure.scale * find_resolution(spread, comparisons=number),
    )  # fmt: skip


def _pool(pilot: Study, measure: Measure) -> Spread:
    """The mean variances of all differences between the first arm of a pilot and its others."""
    search = [r for r in pilot.results if not r.confirms and r.state == "complete"]
    arms = [r.arm for n, r in enumerate(search)
            if not any(same_params(r.arm, before.arm) for before in search[:n])]  # fmt: skip
    cells = [
        measure_cells([r for r in search if same_params(r.arm, arm)], pilot.games, measure)
        for arm in arms
    ]
    spreads = [s for other in cells[1:] if (s := measure_spread(cells[0], other)) is not None]
    if not spreads:
        raise ReportError(
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


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """What the power of a study depends on."""

    name: str
    space: Space
    default: Mapping[str, Any] | None
    analysis: Mapping[str, Any]
    pilot: Path  # folder of the study that tells the spread


def read_plan(name: str) -> PlannedStudy:
    """The study in a folder, or in conf/sweep. Raises ConfigError or FolderError.

    A study that ran is its own pilot.
    """
    folder = Path(name)
    if (record := read_record(folder)) is not None:
        identity = record["identity"]
        return PlannedStudy(
            name=record["name"], space=read_space(identity), analysis=record["analysis"],
            default=identity.get("default"), pilot=folder,
        )  # fmt: skip
    if folder.name not in list_studies():
        raise ConfigError(
            f"{name}: neither the folder of a study, nor one of {', '.join(list_studies())}"
        )
    settings = _compose_study(folder.name)
    pilot = find_pilot(settings.place, settings.analysis.pilot or settings.name)
    if settings.analysis.pilot is None and not (pilot / "study.json").is_file():
        raise ConfigError(
            f"study {settings.name} did not run, so conf/sweep/{settings.name}.yaml must name "
            "another one as its hydra.sweeper.analysis.pilot, whose trials tell how much seeds "
            "differ"
        )
    space, _ = parse_params(settings.params)
    return PlannedStudy(
        name=settings.name, space=add_arms(settings, space), default=settings.default,
        analysis=asdict(settings.analysis), pilot=pilot,
    )  # fmt: skip


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
