"""The settings of a study, read from conf/hydra/sweeper/study.yaml and conf/sweep/*.yaml."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.paths import ROOT

MEASURES = ("wins", "guesses", "repeats", "repeats_over_time", "refused", "idle_groups",
            "test_wins", "minutes")  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHOWN = 40  # characters of the settings in the name of a study that has none


def _check_at_least(least: float, **given: float | None) -> None:
    for key, value in given.items():
        if value is not None and value < least:
            raise ValueError(f"hydra.sweeper.{key} must be {least} or more, not {value}")


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """How much the last stage of each trial may play, equal for all arms of a study."""

    games: int | None = None  # sets trainer.steps
    games_per_step: int | None = None  # sets rollout.groups; None keeps the config's groups
    validations: int = 10  # how often a trial reports, at equal numbers of games

    def __post_init__(self) -> None:
        _check_at_least(1, **{f"budget.{key}": value for key, value in vars(self).items()})


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
        key = "hydra.sweeper.analysis"
        if self.measure not in MEASURES:
            raise ValueError(f"{key}.measure must be one of {', '.join(MEASURES)}")
        _check_at_least(0.0, **{"analysis.margin": self.margin})
        if self.effect is not None and self.effect <= 0.0:
            raise ValueError(f"{key}.effect must be above 0, not {self.effect}")
        for name, pair in self.comparisons.items():
            if len(pair) != 2 or not all(isinstance(arm, str | dict) for arm in pair):
                raise ValueError(
                    f"{key}.comparisons.{name} must be a list of two arms, each a name or its "
                    f"parameters, not {pair}"
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
    sampler: dict[str, object] | None = None  # None: a grid
    pruner: dict[str, object] | None = None
    budget: BudgetSettings = BudgetSettings()
    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    n_trials: int | None = None
    confirm_seeds: list[int] = field(default_factory=list)
    storage: str | None = None
    folder: str | None = None
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
        _check_at_least(
            1, n_trials=self.n_trials, jobs=self.jobs, cores=self.cores, heartbeat=self.heartbeat
        )
        _check_at_least(self.heartbeat + 1, grace=self.grace)
        _check_at_least(0.01, poll=self.poll)
        if not self.stages:
            raise ValueError("hydra.sweeper.stages must have a stage; [] is a plain run")
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
    """The settings of a hydra.sweeper node. Raises ConfigError."""
    parts = {}
    for name, cls in {"budget": BudgetSettings, "analysis": AnalysisSettings}.items():
        given = node.get(name) or {}
        if not isinstance(given, Mapping):
            raise ConfigError(f"hydra.sweeper.{name} must be a group of settings, not {given!r}")
        parts[name] = _instantiate(f"hydra.sweeper.{name}", given, cls)
    if not isinstance(node.get("storage"), str | None):  # the value may hold a password
        raise ConfigError("hydra.sweeper.storage must be text, the address of a database, or null")
    given = {key: value for key, value in node.items() if key != "_recursive_"}
    return _instantiate("hydra.sweeper", {**given, **parts}, StudySettings)


def _instantiate(key: str, node: Mapping[str, Any], cls: type) -> Any:
    return instantiate(key, {**node, "_target_": f"{__name__}.{cls.__name__}"}, cls)


def describe_ad_hoc(varied: Iterable[str], arguments: Sequence[str]) -> dict[str, Any]:
    """Name and question of a study that the command line alone describes.

    varied: the settings that have several values. The same arguments make the same name, so the
    command continues its study.
    """
    names = list(varied)
    shown = re.sub(r"[^A-Za-z0-9.]+", "-", "_".join(names)).strip("-.")[:_SHOWN] or "study"
    digest = hashlib.sha256("\n".join(sorted(arguments)).encode("utf-8", "surrogateescape"))
    name = f"{shown}-{digest.hexdigest()[:8]}"
    return {"name": name, "question": f"What does {' and '.join(names)} change?"}
