"""The settings of a study, read from conf/hydra/sweeper/study.yaml and conf/sweep/*.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.paths import ROOT

SAMPLERS = ("grid", "random", "tpe")
PRUNERS = ("none", "median", "percentile", "asha", "hyperband")
MEASURES = ("wins", "guesses", "repeats", "repeats_over_time", "refused", "idle_groups",
            "test_wins", "minutes")  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _check_at_least(key: str, value: float | None, least: float) -> None:
    if value is not None and value < least:
        raise ValueError(f"hydra.sweeper.{key} must be {least} or more, not {value}")


def _check_one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"hydra.sweeper.{key} must be one of {', '.join(allowed)}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """Who chooses the next parameters. A grid tries every combination of listed values once."""

    name: str = "grid"
    seed: int = 0
    startup_trials: int = 10  # tpe: random trials before it models them

    def __post_init__(self) -> None:
        _check_one_of("sampler.name", self.name, SAMPLERS)
        _check_at_least("sampler.seed", self.seed, 0)
        _check_at_least("sampler.startup_trials", self.startup_trials, 1)


@dataclass(frozen=True, kw_only=True)
class PrunerSettings:
    """Who stops a trial early, by its validation wins at equal numbers of games."""

    name: str = "none"
    startup_trials: int = 5  # median, percentile: complete trials before any is pruned
    warmup: int = 0  # validations of a trial before it can be pruned
    percentile: float = 50.0  # percentile: the share of trials that continue, in percent
    patience: int = 0  # validations without progress before the pruner is asked

    def __post_init__(self) -> None:
        _check_one_of("pruner.name", self.name, PRUNERS)
        for key in ("startup_trials", "warmup", "patience"):
            _check_at_least(f"pruner.{key}", getattr(self, key), 0)
        if not 0.0 < self.percentile < 100.0:
            raise ValueError(
                f"hydra.sweeper.pruner.percentile must be between 0 and 100, not {self.percentile}"
            )


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """How much the last stage of each trial may play, equal for all arms of a study."""

    games: int | None = None  # sets trainer.steps
    games_per_step: int | None = None  # sets rollout.groups; None keeps the config's groups
    validations: int = 10  # how often a trial reports, at equal numbers of games

    def __post_init__(self) -> None:
        for key in ("games", "games_per_step", "validations"):
            _check_at_least(f"budget.{key}", getattr(self, key), 1)


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """How a study's arms are compared. Changing it does not change the study."""

    measure: str = "wins"
    comparisons: dict[str, list[object]] = field(default_factory=dict)  # name: [one, other]
    effect: float | None = None  # the smallest difference that the study asks about
    margin: float | None = None  # differences up to it count as none; None: the measure's own
    pilot: str | None = None  # a study whose trials tell the spread between seeds
    underpowered: bool = False  # whether to start although the pilot says it finds too little

    def __post_init__(self) -> None:
        _check_one_of("analysis.measure", self.measure, MEASURES)
        _check_at_least("analysis.margin", self.margin, 0.0)
        if self.effect is not None and self.effect <= 0.0:
            raise ValueError(f"hydra.sweeper.analysis.effect must be above 0, not {self.effect}")
        for name, pair in self.comparisons.items():
            if len(pair) != 2 or not all(isinstance(arm, str | dict) for arm in pair):
                raise ValueError(
                    f"hydra.sweeper.analysis.comparisons.{name} must be a list of two arms, each a "
                    f"name or its parameters, not {pair}"
                )


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """One study; conf/hydra/sweeper/study.yaml explains each setting."""

    name: str
    question: str = ""
    params: dict[str, object] = field(default_factory=dict)
    arms: dict[str, list[str]] = field(default_factory=dict)
    stages: list[list[str]] = field(default_factory=lambda: [[]])
    default: dict[str, object] | None = None
    sampler: SamplerSettings = SamplerSettings()
    pruner: PrunerSettings = PrunerSettings()
    budget: BudgetSettings = BudgetSettings()
    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    n_trials: int | None = None
    confirm_seeds: list[int] = field(default_factory=list)
    storage: str | None = None
    folder: str | None = None
    trials: str | None = None
    jobs: int = 1
    cores: int | None = None
    heartbeat: int = 60
    grace: int = 180
    poll: float = 1.0
    command: list[str] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"hydra.sweeper.name must be letters, digits and ._-, not {self.name!r}"
            )
        for key in ("n_trials", "jobs", "cores", "heartbeat"):
            _check_at_least(key, getattr(self, key), 1)
        _check_at_least("grace", self.grace, self.heartbeat + 1)
        _check_at_least("poll", self.poll, 0.01)
        if not self.stages:
            raise ValueError("hydra.sweeper.stages must have a stage; [] is a plain run")
        if self.sampler.name == "grid" and self.n_trials is not None:
            raise ValueError(
                "hydra.sweeper.n_trials must be null for a grid, which has its own points"
            )
        if self.sampler.name != "grid" and self.n_trials is None:
            raise ValueError(f"hydra.sweeper.n_trials must be given for {self.sampler.name}")
        if len(set(self.confirm_seeds)) < len(self.confirm_seeds):
            raise ValueError("hydra.sweeper.confirm_seeds must all differ")

    @property
    def report_folder(self) -> Path:
        """The folder of the study's report and database."""
        return ROOT / (self.folder or f"sweeps/{self.name}")


_PARTS = {
    "sampler": SamplerSettings, "pruner": PrunerSettings, "budget": BudgetSettings,
    "analysis": AnalysisSettings,
}  # fmt: skip


def build_study_settings(node: Mapping[str, Any]) -> StudySettings:
    """The settings of a hydra.sweeper node. Raises ConfigError."""
    parts = {}
    for name, cls in _PARTS.items():
        given = node.get(name)
        if not isinstance(given, Mapping | None):
            raise ConfigError(f"hydra.sweeper.{name} must be a group of settings, not {given!r}")
        parts[name] = _instantiate(f"hydra.sweeper.{name}", given or {}, cls)
    if not isinstance(node.get("storage"), str | None):  # the value may hold a password
        raise ConfigError("hydra.sweeper.storage must be text, the address of a database, or null")
    return _instantiate("hydra.sweeper", {**node, **parts}, StudySettings)


def _instantiate(key: str, node: Mapping[str, Any], cls: type) -> Any:
    return instantiate(key, {**node, "_target_": f"{__name__}.{cls.__name__}"}, cls)
