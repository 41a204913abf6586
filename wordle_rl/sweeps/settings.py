"""The settings of a study, read from conf/hydra/sweeper/study.yaml and conf/sweep/*.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wordle_rl.runs.instantiate import instantiate
from wordle_rl.runs.paths import ROOT

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _check_at_least(least: float, **given: float | None) -> None:
    for key, value in given.items():
        if value is not None and value < least:
            raise ValueError(f"hydra.sweeper.{key} must be {least} or more, not {value}")


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """How much each trial may play, equal for all arms of a study."""

    games: int | None = None  # sets trainer.steps
    games_per_step: int | None = None  # sets rollout.groups; None keeps the config's groups
    validations: int = 10  # how often a trial reports, at equal numbers of games

    def __post_init__(self) -> None:
        _check_at_least(1, **{f"budget.{key}": value for key, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """How a study's arms are compared. Changing it does not change the study."""

    measure: Literal[
        "wins", "guesses", "repeats", "repeats_over_time", "refused", "idle_groups", "test_wins"
    ] = "wins"
    comparisons: dict[str, list[object]] = field(default_factory=dict)  # name: [one, other]
    effect: float | None = None  # the smallest difference that the study asks about
    margin: float | None = None  # differences up to it count as none; None: the measure's own
    pilot: str | None = None  # a study whose trials tell the spread between seeds
    underpowered: bool = False  # whether to start although the pilot says it finds too little

    def __post_init__(self) -> None:
        _check_at_least(0.0, **{"analysis.margin": self.margin, "analysis.effect": self.effect})
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
    overrides: list[str] = field(default_factory=list)
    default: dict[str, object] | None = None
    sampler: dict[str, object] | None = None  # None: a grid
    pruner: dict[str, object] | None = None
    budget: BudgetSettings = BudgetSettings()
    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    n_trials: int | None = None
    confirm_seeds: list[int] = field(default_factory=list)
    storage: str | None = None
    folder: str | None = None
    jobs: int = 1
    heartbeat: int = 60
    grace: int = 180
    poll: float = 1.0
    command: list[str] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"hydra.sweeper.name must be letters, digits and ._-, not {self.name!r}"
            )
        _check_at_least(1, n_trials=self.n_trials, jobs=self.jobs, heartbeat=self.heartbeat)
        _check_at_least(self.heartbeat + 1, grace=self.grace)
        _check_at_least(0.01, poll=self.poll)
        if (self.sampler is None) != (self.n_trials is None):
            raise ValueError(
                "hydra.sweeper.n_trials must be given with a sampler, and only then: a grid has "
                "its own points"
            )
        if len(set(self.confirm_seeds)) < len(self.confirm_seeds):
            raise ValueError("hydra.sweeper.confirm_seeds must all differ")

    @property
    def place(self) -> Path:
        """The folder of the study: its files, its database, its trials."""
        return ROOT / (self.folder or f"outputs/sweeps/{self.name}")


def build_study_settings(node: Mapping[str, Any]) -> StudySettings:
    """The settings of a hydra.sweeper node. Raises ConfigError and ValueError."""
    given = {key: value for key, value in node.items() if key not in ("_target_", "_recursive_")}
    for name, cls in {"budget": BudgetSettings, "analysis": AnalysisSettings}.items():
        given[name] = _build(f"hydra.sweeper.{name}", given.get(name) or {}, cls)
    return _build("hydra.sweeper", given, StudySettings)


def _build(key: str, given: Any, cls: type) -> Any:
    named = {**given, "_target_": f"{__name__}.{cls.__name__}"} if isinstance(given, Mapping) else 0
    return instantiate(key, named or given, cls)
