"""The rounds of a study: its search, and the confirmation of the winner with fresh seeds.

Each round is an Optuna study of its own. Both are filled, resumed and counted in the same way. A
grid's points are queued as trials, so that no two workers take the same one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.ledger import build_pruner, build_sampler, show_address
from wordle_rl.sweeps.plan import ARM, StudyPlan
from wordle_rl.sweeps.records import (
    CONFIRMATION,
    SEARCH,
    read_point,
    read_record,
    read_trials,
)
from wordle_rl.sweeps.space import Params, Space, list_grid_points

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
LIVE = (TrialState.RUNNING, TrialState.WAITING)
_FILL_TIME = 60.0  # seconds that the worker which created a study has to fill its queue


@dataclass(frozen=True, kw_only=True)
class Round:
    """Trials from one search space: the search, or its winner and default with fresh seeds."""

    part: str  # SEARCH or CONFIRMATION
    name: str  # of the Optuna study
    identity: Mapping[str, Any]
    space: Space
    points: Sequence[Params] | None  # of a grid; None when a sampler draws them
    n_trials: int
    stages: Callable[[Params], list[list[str]]]  # overrides of each stage of a trial
    sampler: Mapping[str, Any] | None = None
    pruner: Mapping[str, Any] | None = None

    def left(self, trials: Sequence[FrozenTrial]) -> int:
        """How many trials are not done yet, running ones included."""
        return max(self.n_trials - sum(t.state in DONE for t in trials), 0)

    def list_missing(self, trials: Sequence[FrozenTrial]) -> list[Params]:
        """Points of the grid without a trial that is done, running or queued."""
        known = [read_point(t) for t in trials if t.state in (*DONE, *LIVE)]
        return [point for point in self.points or () if point not in known]


def build_search(plan: StudyPlan) -> Round:
    """The trials that the study is about."""
    settings, points = plan.settings, plan.list_points()
    return Round(
        part=SEARCH, name=settings.name, identity=plan.identity(), space=plan.space, points=points,
        n_trials=settings.n_trials or len(points or ()), stages=plan.build_stages,
        sampler=settings.sampler, pruner=settings.pruner,
    )  # fmt: skip


def build_confirmation(plan: StudyPlan, best: Params) -> Round:
    """The winner and the default again, with fresh seeds, reported on the test secrets."""
    settings = plan.settings
    default: Any = settings.default or {}
    # A study that varies seeds alone has no default: each trial is the config as it is.
    arms = ("winner",) if dict(best) == default else ("winner", "default")
    seeds = tuple(settings.confirm_seeds)
    space = {ARM: CategoricalDistribution(arms), "seed": CategoricalDistribution(seeds)}

    def build_stages(params: Params) -> list[list[str]]:
        stages = plan.build_stages(best if params[ARM] == "winner" else default)
        seeded = [[*stage, f"seed={params['seed']}"] for stage in stages]
        return [*seeded[:-1], [*seeded[-1], "trainer.report=true"]]

    return Round(
        part=CONFIRMATION, name=f"{settings.name}-confirm",
        identity={"winner": dict(best), "seeds": list(seeds)}, space=space,
        points=list_grid_points(space), n_trials=len(arms) * len(seeds), stages=build_stages,
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
    most = max((len(values) for _, values in arms.values()), default=0)
    full = [(params, values) for params, values in arms.values() if len(values) == most]
    return max(full, key=lambda arm: sum(arm[1]), default=(None, []))[0]


def load_study(storage: RDBStorage, part: Round) -> optuna.Study:
    return optuna.load_study(
        study_name=part.name, storage=storage, sampler=build_sampler(None, 0),
        pruner=build_pruner(part.pruner),
    )  # fmt: skip


def open_round(storage: RDBStorage, part: Round, plan: StudyPlan) -> tuple[optuna.Study, int]:
    """The Optuna study of a round: created and filled, or as it was left.

    Returns it with the number of finished trials that it took from results.csv. Raises ConfigError
    when it was created with other settings.
    """
    identity = json.loads(json.dumps(part.identity))
    try:
        optuna.create_study(study_name=part.name, storage=storage, direction="maximize")
        created = True
    except DuplicatedStudyError:
        created = False
    study, taken = load_study(storage, part), 0
    end = time.monotonic() + _FILL_TIME
    while not created and "identity" not in study.user_attrs and time.monotonic() < end:
        time.sleep(0.3)  # another worker is filling it
    before = study.user_attrs.get("identity")
    if before is None and not study.get_trials(deepcopy=False):
        taken = _add_earlier_trials(study, part, plan)
    elif before not in (None, identity):
        what = "; ".join(
            f"{key} was {before.get(key)}, is {value}"
            for key, value in identity.items()
            if value != before.get(key)
        )
        raise ConfigError(
            f"study {part.name} in {show_address(plan.settings)} was created with other settings: "
            f"{what}; old and new trials cannot be compared: set another hydra.sweeper.name=..., "
            f"or remove {plan.settings.place}"
        )
    for point in part.list_missing(study.get_trials(deepcopy=False)):
        study.enqueue_trial(dict(point))
    if before is None:
        study.set_user_attr("identity", identity)
    return study, taken


def _add_earlier_trials(study: optuna.Study, part: Round, plan: StudyPlan) -> int:
    """Take the finished trials in results.csv, if the study ran elsewhere. Returns their number.

    Once a trial of the search has run here, results.csv has no confirmation: the winner may be
    another one.
    """
    folder = plan.settings.place
    record = read_record(folder)
    if record is None or record["identity"] != json.loads(json.dumps(plan.identity())):
        return 0
    known = read_trials(folder, part.part, part.space)
    lost = create_trial(state=TrialState.FAIL)  # a number that nothing came of
    for number in range(max(known, default=-1) + 1):
        study.add_trial(known.get(number, lost))
    return len(known)
