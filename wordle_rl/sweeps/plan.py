"""What a trial runs: its parameters become the command lines of its stages.

A stage is one training run. `{start}` in its overrides is the model of the previous stage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.settings import StudySettings
from wordle_rl.sweeps.space import (
    Distribution,
    Params,
    Space,
    format_distribution,
    format_overrides,
    list_grid_points,
    list_probes,
    quote,
)

Compose = Callable[[Sequence[str]], dict[str, Any]]  # overrides -> the resolved config
ARM = "arm"  # the parameter whose values are the names of hydra.sweeper.arms
START = "{start}"
SHIPPED = "embedded/tiny"  # takes the place of {start} in checks before a study
_FOR_STAGE = re.compile(r"(\d+): *(.+)")
# The sweeper decides these itself: where runs are kept, and which run to resume.
_RESERVED = ("output_dir", "resume", "sweep")


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The trials of a study as command lines."""

    settings: StudySettings
    space: Space
    overrides: tuple[str, ...]  # from the command line, for every trial
    compose: Compose

    def __post_init__(self) -> None:
        if not self.space:
            raise ConfigError("hydra.sweeper.params must have a parameter with several values")
        written = [*self.overrides, *(f"{name}=" for name in self.space)]
        for override in written:
            key = override.partition("=")[0].lstrip("+~")
            if key in _RESERVED:
                raise ConfigError(f"{override}: a study sets {', '.join(_RESERVED)} itself")
        self.list_points()

    def list_points(self) -> list[dict[str, Any]] | None:
        """All points of a grid, in the order in which they are tried; None with a sampler."""
        try:
            return list_grid_points(self.space) if self.settings.sampler is None else None
        except ValueError as error:
            raise ConfigError(f"hydra.sweeper.params: {error}") from None

    def build_stages(self, params: Params) -> list[list[str]]:
        """The overrides of each stage of a trial, output folder aside."""
        settings, arm = self.settings, params.get(ARM)
        if arm is not None and arm not in settings.arms:
            raise ConfigError(
                f"hydra.sweeper: arm must be one of {', '.join(settings.arms)}, not {arm!r}"
            )
        given = format_overrides({name: v for name, v in params.items() if name != ARM})
        stages = []
        for number, stage in enumerate(settings.stages, 1):
            own = _pick_for_stage(number, settings.arms[str(arm)] if arm is not None else [])
            stages.append([*stage, *self.overrides, *own, *given])
        return [*stages[:-1], [*stages[-1], *self._fit_budget(stages[-1])]]

    def check(self, build: Callable[[dict[str, Any]], object]) -> None:
        """Compose and build every value once, so that a wrong one is found before the first trial.

        build: raises ValueError for a config that cannot be trained.
        """
        for params in [*list_probes(self.space), self.settings.default or {}]:
            for stage in self.build_stages(params):
                build(self._compose_stage(stage))

    def identity(self) -> dict[str, Any]:
        """The settings that cannot change once a study has started."""
        settings = self.settings
        return {
            "params": {name: format_distribution(item) for name, item in self.space.items()},
            "arms": settings.arms,
            "stages": settings.stages,
            "budget": vars(settings.budget),
            "overrides": list(self.overrides),
            "default": settings.default,
            "grid": settings.sampler is None,
        }

    def _fit_budget(self, stage: Sequence[str]) -> list[str]:
        """Overrides that make a stage play the study's games, unless it sets its own steps."""
        budget = self.settings.budget
        said = {override.partition("=")[0] for override in stage}
        if budget.games is None or "trainer.steps" in said:
            return []
        rollout = self._compose_stage(stage)["rollout"]
        size, groups, more = rollout["num_generations"], rollout["groups"], []
        if budget.games_per_step is not None and "rollout.groups" not in said:
            groups, rest = divmod(budget.games_per_step, size)
            if rest or not groups:
                raise ConfigError(
                    f"hydra.sweeper.budget.games_per_step must be a multiple of "
                    f"rollout.num_generations={size}, not {budget.games_per_step}"
                )
            more = [f"rollout.groups={groups}"]
        steps = budget.games // (groups * size)
        if steps < budget.validations:
            raise ConfigError(
                f"hydra.sweeper.budget.games={budget.games} makes {steps} steps of {groups * size} "
                f"games, too few for {budget.validations} validations"
            )
        every = steps // budget.validations
        due = {"steps": steps, "validate_every": every, "checkpoint_every": every}
        return more + [f"trainer.{k}={v}" for k, v in due.items() if f"trainer.{k}" not in said]

    def _compose_stage(self, stage: Sequence[str]) -> dict[str, Any]:
        return self.compose([override.replace(START, SHIPPED) for override in stage])


def add_arms(settings: StudySettings, space: Space) -> dict[str, Distribution]:
    """The space with the study's arms as its first parameter, unless it already has some."""
    if ARM in space or not settings.arms:
        return dict(space)
    names = tuple(settings.arms)
    return {ARM: CategoricalDistribution(names), **space}


def insert_start(overrides: Sequence[str], model: Path | None) -> list[str]:
    """The overrides of a stage, with the model of the stage before in the place of {start}."""
    path = quote(str(model)) if model else ""
    return [override.replace(START, path) for override in overrides]


def _pick_for_stage(number: int, overrides: Sequence[str]) -> list[str]:
    """The overrides for every stage, and those for this one, written as in `1: a.b=c`."""
    picked = []
    for override in overrides:
        found = _FOR_STAGE.fullmatch(override)
        if found is None:
            picked.append(override)
        elif int(found[1]) == number:
            picked.append(found[2])
    return picked
