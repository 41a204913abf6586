"""The two rounds of a study: its search, and the confirmation of the winner with fresh seeds.

Each round is an Optuna study of its own. Both are filled, resumed and counted in the same way. A
grid's points are queued as trials, so that no two workers take the same one.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError
from optuna.trial import FrozenTrial, TrialState

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.plan import ARM, StudyPlan
from wordle_rl.sweeps.samplers import build_pruner, build_sampler
from wordle_rl.sweeps.settings import PrunerSettings, SamplerSettings
from wordle_rl.sweeps.space import Choice, Params, Space, list_grid_points, same_params

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
LIVE = (TrialState.RUNNING, TrialState.WAITING)
CONFIRM = "-confirm"  # ends the name of the Optuna study that confirms a winner
_IDENTITY = "identity"  # the study attribute with what must not change; set once all is queued
_FILL_TIME = 60.0  # seconds that the worker which created a study has to fill its queue


@dataclass(frozen=True, kw_only=True)
class Round:
    """Trials from one search space."""

    name: str  # of the Optuna study
    identity: Mapping[str, Any]
    space: Space
    points: Sequence[Params] | None  # of a grid; None when the sampler draws them
    n_trials: int
    stages: Callable[[Params], list[list[str]]]  # overrides of each stage of a trial
    sampler: SamplerSettings
    pruner: PrunerSettings
    validations: int
    folder: Path  # of its trials

    def load(self, storage: optuna.storages.BaseStorage) -> optuna.Study:
        return optuna.load_study(
            study_name=self.name, storage=storage, sampler=build_sampler(self.sampler),
            pruner=build_pruner(self.pruner, self.validations),
        )  # fmt: skip

    def finished(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether nothing is left to do. Failed points of a grid wait for the next command."""
        if any(t.state in LIVE for t in trials):
            return False
        return self.points is not None or self.left(trials) == 0

    def left(self, trials: Sequence[FrozenTrial]) -> int:
        """How many trials are not done yet, running ones included."""
        return max(self.n_trials - sum(t.state in DONE for t in trials), 0)

    def may_start(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether there is a trial that nobody has taken."""
        if any(t.state == TrialState.WAITING for t in trials):
            return True
        running = sum(t.state == TrialState.RUNNING for t in trials)
        return self.points is None and self.left(trials) > running

    def missing(self, trials: Sequence[FrozenTrial]) -> list[Params]:
        """Points of the grid without a trial that is done, running or queued."""
        known = [read_point(t) for t in trials if t.state in (*DONE, *LIVE)]
        return [p for p in self.points or () if not any(same_params(p, k) for k in known)]


def read_point(trial: FrozenTrial) -> Params:
    """The parameters of a trial, also of one that is still queued."""
    return trial.system_attrs.get("fixed_params", trial.params)


def build_search(plan: StudyPlan, folder: Path) -> Round:
    """The trials that the study is about."""
    settings = plan.settings
    points = plan.list_points() if settings.sampler.name == "grid" else None
    return Round(
        name=settings.name, identity=plan.identity(), space=plan.space, points=points,
        n_trials=settings.n_trials or len(points or ()), stages=plan.build_stages,
        sampler=settings.sampler, pruner=settings.pruner,
        validations=settings.budget.validations, folder=folder,
    )  # fmt: skip


def build_confirmation(plan: StudyPlan, best: Params, folder: Path) -> Round:
    """The winner and the default again, with fresh seeds, reported on the test secrets."""
    settings = plan.settings
    arms = ("winner",) if _is_default(best, settings.default) else ("winner", "default")
    seeds = tuple(settings.confirm_seeds)
    space = {
        ARM: Choice(values=arms, texts=arms),
        "seed": Choice(values=seeds, texts=tuple(map(str, seeds))),
    }

    def build_stages(params: Params) -> list[list[str]]:
        winning = params[ARM] == "winner"
        unseeded = plan.build_stages(best) if winning else plan.build_default_stages()
        seeded = [[*stage, f"seed={params['seed']}"] for stage in unseeded]
        return [*seeded[:-1], [*seeded[-1], "trainer.report=true"]]

    return Round(
        name=settings.name + CONFIRM, identity={"winner": dict(best), "seeds": list(seeds)},
        space=space, points=list_grid_points(space), n_trials=len(arms) * len(seeds),
        stages=build_stages, sampler=SamplerSettings(), pruner=PrunerSettings(),
        validations=settings.budget.validations, folder=folder / "confirm",
    )  # fmt: skip


def find_winner(trials: Sequence[FrozenTrial]) -> Params | None:
    """The parameters, seed aside, with the best mean objective over seeds.

    An arm counts only if it completed as many seeds as any other arm, so one lucky seed does not
    win.
    """
    arms: dict[str, tuple[Params, list[float]]] = {}
    for trial in trials:
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            params = {k: v for k, v in trial.params.items() if k != "seed"}
            arms.setdefault(json.dumps(params, sort_keys=True), (params, []))[1].append(trial.value)
    if not arms:
        return None
    most = max(len(values) for _, values in arms.values())
    full = [(params, values) for params, values in arms.values() if len(values) == most]
    return max(full, key=lambda arm: sum(arm[1]) / most)[0]


def open_round(
    storage: optuna.storages.BaseStorage,
    part: Round,
    where: str,
    restore: Callable[[optuna.Study], None] = lambda study: None,
) -> optuna.Study:
    """The Optuna study of a round: created and filled, or as it was left.

    where: the storage, for messages. restore: puts the trials into a new study that ended on
    another machine. Raises ConfigError when the study was created with other settings.
    """
    created = False
    try:
        study = part.load(storage)
    except KeyError:
        try:
            optuna.create_study(study_name=part.name, storage=storage, direction="maximize")
            created = True
        except DuplicatedStudyError:
            pass  # a worker on another machine was faster
        study = part.load(storage)
    if not created and not _wait_until_filled(study):
        created = True  # the worker that created it died before it was filled
    if not created:
        _check_identity(part, study.user_attrs[_IDENTITY], where)
    elif not study.get_trials(deepcopy=False):
        restore(study)
    for point in part.missing(study.get_trials(deepcopy=False)):
        study.enqueue_trial(dict(point))
    if created:
        study.set_user_attr(_IDENTITY, json.loads(json.dumps(part.identity)))
    return study


def _wait_until_filled(study: optuna.Study) -> bool:
    """Wait for the worker that created a study; false when its time is over."""
    end = time.monotonic() + _FILL_TIME
    while _IDENTITY not in study.user_attrs:
        if time.monotonic() > end:
            return False
        time.sleep(random.uniform(0.2, 0.6))
    return True


def _check_identity(part: Round, before: Mapping[str, Any], where: str) -> None:
    now = json.loads(json.dumps(part.identity))
    for key, value in now.items():
        if value != before.get(key):
            raise ConfigError(
                f"study {part.name} in {where} was created with different {key}: "
                f"{_describe_difference(before.get(key), value)}; old and new trials cannot be "
                "compared: set another hydra.sweeper.name=..., or remove the old study and its "
                f"trials in {part.folder}"
            )


def _describe_difference(old: Any, new: Any) -> str:
    """What differs, by name if there are names."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [n for n in [*old, *(n for n in new if n not in old)] if old.get(n) != new.get(n)]
        return ", ".join(
            f"{n} was {old.get(n, 'absent')}, is {new.get(n, 'absent')}" for n in names
        )
    return f"was {old}, is {new}"


def _is_default(best: Params, default: Mapping[str, Any] | None) -> bool:
    # A study that varies seeds alone has no default: each trial is the config as it is.
    return same_params(best, default or {})
