"""What a trial runs: its parameters become the command lines of its stages.

A stage is one training run; `{start}` in its overrides is the model that the stage before it made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.settings import StudySettings
from wordle_rl.sweeps.space import Choice, Params, Space, grid, probes, texts

Compose = Callable[[Sequence[str]], dict[str, Any]]  # the resolved config of overrides
ARM = "arm"  # the parameter whose values are the names of hydra.sweeper.arms
START = "{start}"
SHIPPED = "embedded/tiny"  # stands for {start} while there is none
_OF_STAGE = re.compile(r"(\d+): *(.+)")
# The sweeper's own business: where runs lie, and going on with them.
_RESERVED = ("output_dir", "resume", "sweep")


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The trials of a study as command lines."""

    settings: StudySettings
    space: Space
    overrides: tuple[str, ...]  # of the command line, for every trial
    compose: Compose

    def __post_init__(self) -> None:
        if not self.space:
            raise ConfigError("hydra.sweeper.params must have a parameter with several values")
        written = [*self.overrides, *(f"{name}=" for name in self.space)]
        for override in written:
            key = override.partition("=")[0].lstrip("+~")
            if key in _RESERVED:
                raise ConfigError(f"{override}: a study sets {', '.join(_RESERVED)} itself")
        if self.settings.sampler.name == "grid":
            for name, item in self.space.items():
                try:
                    item.listed()
                except ValueError as error:
                    raise ConfigError(f"hydra.sweeper.params.{name}: {error}") from None

    def points(self) -> list[dict[str, Any]]:
        """All that a grid tries, in its order."""
        return grid(self.space)

    def stages(self, params: Params) -> list[list[str]]:
        """The overrides of each stage of a trial, but for where it writes."""
        given = texts(self.space, params)
        return self._stages(given.pop(ARM, None), [f"{k}={v}" for k, v in given.items()])

    def default_stages(self) -> list[list[str]]:
        """The overrides of each stage of a trial as it is without the study's choice."""
        given = {k: _plain(v) for k, v in (self.settings.default or {}).items()}
        return self._stages(given.pop(ARM, None), [f"{k}={v}" for k, v in given.items()])

    def check(self, build: Callable[[dict[str, Any]], object]) -> None:
        """Compose and build what each value leads to, so that nothing wrong is found at night.

        build: raises ValueError for a config that cannot be trained.
        """
        for params in probes(self.space):
            for stage in self.stages(params):
                build(self._composed(stage))
        for stage in self.default_stages():
            build(self._composed(stage))

    def identity(self) -> dict[str, Any]:
        """What must stay the same while a study lives."""
        settings = self.settings
        return {
            "params": {name: str(item) for name, item in self.space.items()},
            "arms": settings.arms,
            "stages": settings.stages,
            "budget": vars(settings.budget),
            "overrides": list(self.overrides),
            "default": settings.default,
            "grid": settings.sampler.name == "grid",
        }

    def _stages(self, arm: str | None, given: Sequence[str]) -> list[list[str]]:
        if arm is not None and arm not in self.settings.arms:
            raise ConfigError(
                f"hydra.sweeper: arm must be one of {', '.join(self.settings.arms)}, not {arm!r}"
            )
        stages = []
        for number, stage in enumerate(self.settings.stages, 1):
            of_arm = _of_stage(number, self.settings.arms.get(arm or "", []))
            stages.append([*stage, *self.overrides, *of_arm, *given])
        return [*stages[:-1], [*stages[-1], *self._budget(stages[-1])]]

    def _budget(self, stage: Sequence[str]) -> list[str]:
        """Steps and groups that play the study's games; what a stage says itself stays."""
        budget = self.settings.budget
        said = {override.partition("=")[0] for override in stage}
        if budget.games is None or "trainer.steps" in said:
            return []
        rollout = self._composed(stage)["rollout"]
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
                f"hydra.sweeper.budget.games={budget.games} are {steps} steps of {groups * size} "
                f"games: too few for {budget.validations} validations"
            )
        every = steps // budget.validations
        due = {"steps": steps, "validate_every": every, "checkpoint_every": every}
        return more + [f"trainer.{k}={v}" for k, v in due.items() if f"trainer.{k}" not in said]

    def _composed(self, stage: Sequence[str]) -> dict[str, Any]:
        return self.compose([override.replace(START, SHIPPED) for override in stage])


def with_arms(settings: StudySettings, space: Mapping[str, Any]) -> dict[str, Any]:
    """The space with its arms as a parameter, first, unless it names some of them itself."""
    if ARM in space or not settings.arms:
        return dict(space)
    names = tuple(settings.arms)
    return {ARM: Choice(values=names, texts=names), **space}


def started_from(overrides: Sequence[str], model: Path | None) -> list[str]:
    """Overrides of a stage, beginning with the model of the stage before."""
    path = quoted_path(model) if model else ""
    return [override.replace(START, path) for override in overrides]


def quoted_path(path: Path) -> str:
    """A path as a value on the command line."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _of_stage(number: int, overrides: Sequence[str]) -> list[str]:
    """Those for all stages, and those that begin with this one's number, as in `1: a.b=c`."""
    mine = []
    for override in overrides:
        found = _OF_STAGE.fullmatch(override)
        if found is None:
            mine.append(override)
        elif int(found[1]) == number:
            mine.append(found[2])
    return mine


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
