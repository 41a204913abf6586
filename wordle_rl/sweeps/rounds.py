"""The Optuna studies behind one study of ours: its search, and the confirmation of the winner.

Both are filled, resumed and counted in the same way; a grid's points are trials in a queue, so that
several workers never take the same one.
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
from wordle_rl.sweeps.samplers import pruner, sampler
from wordle_rl.sweeps.settings import PrunerSettings, SamplerSettings
from wordle_rl.sweeps.space import Choice, Params, Space, grid, same_params

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
LIVE = (TrialState.RUNNING, TrialState.WAITING)
CONFIRM = "-confirm"  # ends the name of the study that confirms another
_IDENTITY = "identity"  # the study attribute with what must not change; set last of all
_FILL_TIME = 60.0  # seconds in which whoever made a study fills its queue


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Trials that are drawn from one space."""

    name: str  # of the Optuna study
    identity: Mapping[str, Any]
    space: Space
    points: Sequence[Params] | None  # of a grid; None where the sampler draws them
    n_trials: int
    stages: Callable[[Params], list[list[str]]]  # overrides of each stage of a trial
    sampler: SamplerSettings
    pruner: PrunerSettings
    validations: int
    folder: Path  # where its trials lie

    def load(self, storage: optuna.storages.BaseStorage) -> optuna.Study:
        return optuna.load_study(
            study_name=self.name, storage=storage, sampler=sampler(self.sampler),
            pruner=pruner(self.pruner, self.validations),
        )  # fmt: skip

    def finished(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether nothing is left to do; a grid's points that failed wait for another start."""
        if any(t.state in LIVE for t in trials):
            return False
        return self.points is not None or self.left(trials) == 0

    def left(self, trials: Sequence[FrozenTrial]) -> int:
        """How many trials are still to be done, those in work included."""
        return max(self.n_trials - sum(t.state in DONE for t in trials), 0)

    def may_start(self, trials: Sequence[FrozenTrial]) -> bool:
        if any(t.state == TrialState.WAITING for t in trials):
            return True
        running = sum(t.state == TrialState.RUNNING for t in trials)
        return self.points is None and self.left(trials) > running

    def missing(self, trials: Sequence[FrozenTrial]) -> list[Params]:
        """Points of the grid that no trial has done, does or is to do."""
        known = [point_of(t) for t in trials if t.state in (*DONE, *LIVE)]
        return [p for p in self.points or () if not any(same_params(p, k) for k in known)]


def point_of(trial: FrozenTrial) -> Params:
    """The parameters of a trial, also of one that waits."""
    return trial.system_attrs.get("fixed_params", trial.params)


def search(plan: StudyPlan, folder: Path) -> Phase:
    """The trials that the study is about."""
    settings = plan.settings
    points = plan.points() if settings.sampler.name == "grid" else None
    return Phase(
        name=settings.name, identity=plan.identity(), space=plan.space, points=points,
        n_trials=settings.n_trials or len(points or ()), stages=plan.stages,
        sampler=settings.sampler, pruner=settings.pruner,
        validations=settings.budget.validations, folder=folder,
    )  # fmt: skip


def confirmation(plan: StudyPlan, best: Params, folder: Path) -> Phase:
    """Winner and default again, with fresh seeds, reported on the test secrets."""
    settings = plan.settings
    arms = ("winner",) if _is_default(best, settings.default) else ("winner", "default")
    seeds = tuple(settings.confirm_seeds)
    space = {
        ARM: Choice(values=arms, texts=arms),
        "seed": Choice(values=seeds, texts=tuple(map(str, seeds))),
    }

    def stages(params: Params) -> list[list[str]]:
        of_arm = plan.stages(best) if params[ARM] == "winner" else plan.default_stages()
        seeded = [[*stage, f"seed={params['seed']}"] for stage in of_arm]
        return [*seeded[:-1], [*seeded[-1], "trainer.report=true"]]

    return Phase(
        name=settings.name + CONFIRM, identity={"winner": dict(best), "seeds": list(seeds)},
        space=space, points=grid(space), n_trials=len(arms) * len(seeds), stages=stages,
        sampler=SamplerSettings(), pruner=PrunerSettings(),
        validations=settings.budget.validations, folder=folder / "confirm",
    )  # fmt: skip


def winner(trials: Sequence[FrozenTrial]) -> Params | None:
    """The parameters, but for the seed, with the best mean objective over seeds.

    Only those that completed with as many seeds as any: a single lucky seed does not win.
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


def open_phase(storage: optuna.storages.BaseStorage, phase: Phase, where: str) -> optuna.Study:
    """The study of a phase: made and filled, or as it was left.

    where: the storage, for messages. Raises ConfigError when the study was made otherwise.
    """
    made = False
    try:
        study = phase.load(storage)
    except KeyError:
        try:
            optuna.create_study(study_name=phase.name, storage=storage, direction="maximize")
            made = True
        except DuplicatedStudyError:
            pass  # a worker on another machine was faster
        study = phase.load(storage)
    if not made and not _identified(study):
        made = True  # whoever made it died before it was filled
    if not made:
        _check_identity(phase, study.user_attrs[_IDENTITY], where)
    for point in phase.missing(study.get_trials(deepcopy=False)):
        study.enqueue_trial(dict(point))
    if made:
        study.set_user_attr(_IDENTITY, json.loads(json.dumps(phase.identity)))
    return study


def _identified(study: optuna.Study) -> bool:
    """Whether a study that somebody else made is filled, perhaps after a while."""
    end = time.monotonic() + _FILL_TIME
    while _IDENTITY not in study.user_attrs:
        if time.monotonic() > end:
            return False
        time.sleep(random.uniform(0.2, 0.6))
    return True


def _check_identity(phase: Phase, before: Mapping[str, Any], where: str) -> None:
    now = json.loads(json.dumps(phase.identity))
    for key, value in now.items():
        if value != before.get(key):
            raise ConfigError(
                f"study {phase.name} in {where} was made with other {key}: "
                f"{_difference(before.get(key), value)}; its trials cannot be compared with new "
                "ones: give it another hydra.sweeper.name=..., or remove the old study and its "
                f"trials, {phase.folder}"
            )


def _difference(old: Any, new: Any) -> str:
    """What differs, by name where there are names."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [n for n in [*old, *(n for n in new if n not in old)] if old.get(n) != new.get(n)]
        return ", ".join(
            f"{n} was {old.get(n, 'absent')}, is {new.get(n, 'absent')}" for n in names
        )
    return f"was {old}, is {new}"


def _is_default(best: Params, default: Mapping[str, Any] | None) -> bool:
    # without a choice, as in a study of seeds alone, a trial is the config as it is
    return same_params(best, default or {})
