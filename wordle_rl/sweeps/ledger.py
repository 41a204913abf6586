"""Optuna's ledger of a study: its database, its samplers and pruners, and its two rounds.

The rounds are the search, and the winner and the default with fresh seeds. Each is an Optuna study
in which a grid's points are queued, so that no two workers take the same one.
"""

import inspect
import json
import platform
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.plan import StudyPlan, StudySettings
from wordle_rl.sweeps.results import (
    CONFIRMATION,
    CONFIRMED,
    RECORD,
    SEARCH,
    read_record,
    read_trials,
)
from wordle_rl.sweeps.space import ARM, Params, Space, count_points, list_grid_points
from wordle_rl.sweeps.trial import RETRIES

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
LIVE = (TrialState.RUNNING, TrialState.WAITING)
_FILL_TIME = 60.0  # seconds that the worker which created a study has to fill its queue
_DRAWS = 8  # of a sampler, which may draw a point that has its trial
_SQLITE_TIMEOUT = 120.0  # seconds that a worker waits while others hold the file


def open_storage(settings: StudySettings) -> RDBStorage:
    """Optuna's ledger of a study. Raises ConfigError when the database cannot be opened."""
    address = settings.storage or f"sqlite:///{settings.place / 'study.db'}"
    try:
        url = make_url(address)
    except ArgumentError:  # its message may quote the password
        raise ConfigError(
            "hydra.sweeper.storage must be the address of a database: sqlite:///<file> on one "
            "machine, postgresql+psycopg://<user>:<password>@<host>/<database> for several"
        ) from None
    sqlite = {"connect_args": {"timeout": _SQLITE_TIMEOUT}}
    try:
        return RDBStorage(
            address,
            engine_kwargs=sqlite if address.startswith("sqlite") else {"pool_pre_ping": True},
            heartbeat_interval=settings.heartbeat,
            grace_period=settings.grace,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
        )
    except Exception as error:
        shown, (said, *_) = url.render_as_string(), [*str(error).splitlines(), repr(error)]
        raise ConfigError(
            f"hydra.sweeper.storage={shown}: {said.replace(address, shown)}"
        ) from None


def build_sampler(node: Mapping[str, Any] | None, trial: int) -> Any:
    """The sampler of one trial, seeded by the study's seed and the trial's number.

    So no two workers draw the same point, and an interrupted study draws the same points.
    """
    if node is None:
        return optuna.samplers.RandomSampler()  # a grid queues its points
    seed = (int(node.get("seed") or 0) * 1_000_003 + trial) % 2**32
    return _build_part("hydra.sweeper.sampler", node, optuna.samplers, seed=seed)


def _build_part(key: str, node: Mapping[str, Any], module: ModuleType, **more: Any) -> Any:
    """The object of a node, whose `_target_` is a class of the module; more: if it knows them."""
    where, _, name = str(node.get("_target_")).rpartition(".")
    if where != module.__name__ or name not in module.__all__:
        have = ", ".join(n for n in module.__all__ if n[0].isupper())
        raise ConfigError(f"{key}._target_ must be {module.__name__}.<class>, out of {have}")
    given = {
        k: _build_part(f"{key}.{k}", v, module) if isinstance(v, Mapping) and "_target_" in v else v
        for k, v in node.items()
        if k != "_target_"
    }
    cls = getattr(module, name)
    known = inspect.signature(cls).parameters
    try:
        return cls(**given | {k: v for k, v in more.items() if k in known})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Round:
    """Trials from one search space: the search, or its winner and default with fresh seeds."""

    part: str  # SEARCH or CONFIRMATION
    name: str  # of the Optuna study
    space: Space
    points: Sequence[Params] | None  # of a grid; None when a sampler draws them
    n_trials: int
    build_run: Callable[[Params], list[str]]  # overrides of a trial
    study: optuna.Study
    taken: int  # finished trials from study.json

    @property
    def trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def left(self) -> int:
        """How many trials are not done yet, running ones included."""
        return max(self.n_trials - sum(t.state in DONE for t in self.trials), 0)

    def list_missing(self) -> list[Params]:
        """Points of the grid without a trial that is done, running or queued."""
        known = [
            trial.system_attrs.get("fixed_params", trial.params)  # a queued one has no params yet
            for trial in self.trials
            if trial.state in (*DONE, *LIVE)
        ]
        return [point for point in self.points or () if point not in known]

    def take_trial(self, sampler: Mapping[str, Any] | None) -> optuna.Trial | None:
        """A trial with its parameters; None when there is none to take.

        For one thread of a machine at a time: sqlite ignores SELECT ... FOR UPDATE, by which Optuna
        gives a trial to one worker alone.
        """
        optuna.storages.fail_stale_trials(self.study)
        states = [trial.state for trial in self.trials]
        drawn = sum(state in (*DONE, TrialState.RUNNING) for state in states)
        if TrialState.WAITING not in states and (self.points or drawn >= self.n_trials):
            return None
        for _ in range(_DRAWS):
            self.study.sampler = build_sampler(sampler, len(self.trials))
            trial = self.study.ask(dict(self.space))
            queued = "fixed_params" in trial.storage.get_trial_system_attrs(trial._trial_id)
            if queued or not (self.points or self._is_known(trial)):
                return trial
            # Another machine has emptied the queue, or the sampler drew a point a second time.
            self.study.tell(trial, state=TrialState.FAIL)
            if self.points:
                return None
        return self._take_first_left()

    def _is_known(self, drawn: optuna.Trial) -> bool:
        """Whether another trial with the parameters of a new one is done, running or queued."""
        return any(
            drawn.params == trial.system_attrs.get("fixed_params", trial.params)
            for trial in self.trials
            if trial.number != drawn.number and trial.state in (*DONE, *LIVE)
        )

    def _take_first_left(self) -> optuna.Trial | None:
        """The first point of a space without a trial; None if it has none, or is not finite."""
        if count_points(self.space) is None:
            return None
        left = replace(self, points=list_grid_points(self.space)).list_missing()
        if not left:
            return None
        self.study.enqueue_trial(dict(left[0]))
        return self.study.ask(dict(self.space))


def open_search(storage: RDBStorage, plan: StudyPlan) -> Round:
    """The trials that the study is about. Raises ConfigError for a study of other settings."""
    return _open(
        storage,
        plan,
        part=SEARCH,
        name=plan.settings.name,
        space=plan.space,
        points=plan.points,
        n_trials=plan.n_trials,
        build_run=plan.build_run,
    )


def open_confirmation(storage: RDBStorage, plan: StudyPlan, winner: FrozenTrial) -> Round:
    """The winner and the default again, with fresh seeds, reported on the test secrets."""
    settings = plan.settings
    best: Any = {name: value for name, value in winner.params.items() if name != "seed"}
    default: Any = settings.default or {}
    # A study that varies seeds alone has no default: each trial is the config as it is.
    arms = ["winner"] if best == default else ["winner", "default"]
    points: Any = [{ARM: arm, "seed": seed} for seed in settings.confirm_seeds for arm in arms]

    def build_run(params: Params) -> list[str]:
        run = plan.build_run(best if params[ARM] == "winner" else default)
        return [*run, f"seed={params['seed']}", "trainer.report=true"]

    return _open(
        storage,
        plan,
        part=CONFIRMATION,
        name=f"{settings.name}-confirm-{winner.number}",
        space=CONFIRMED,
        points=points,
        n_trials=len(points),
        build_run=build_run,
    )


def _open(storage: RDBStorage, plan: StudyPlan, **about: Any) -> Round:
    """A round with its Optuna study: created and filled, or as it was left."""
    name, part = about["name"], about["part"]
    _check_identity(plan, read_record(plan.settings.place).get("identity"))
    try:
        optuna.create_study(study_name=name, storage=storage, direction="maximize")
        created = True
    except DuplicatedStudyError:
        created = False
    pruner, node = optuna.pruners.NopPruner(), plan.settings.pruner if part == SEARCH else None
    if node is not None:
        pruner = _build_part("hydra.sweeper.pruner", node, optuna.pruners)
    study = optuna.load_study(study_name=name, storage=storage, pruner=pruner)
    end = time.monotonic() + _FILL_TIME
    while not created and "identity" not in study.user_attrs and time.monotonic() < end:
        time.sleep(0.3)  # a worker on another machine is filling it
    _check_identity(plan, study.user_attrs.get("identity"))
    _note_place(plan, study, storage)
    known = {}
    if not study.get_trials(deepcopy=False):
        known = read_trials(plan.settings.place, part, about["space"])
    lost = create_trial(state=TrialState.FAIL)  # a number that nothing came of
    for number in range(max(known, default=-1) + 1):
        study.add_trial(known.get(number, lost))
    opened = Round(**about, study=study, taken=len(known))
    for point in opened.list_missing():
        study.enqueue_trial(dict(point))
    study.set_user_attr("identity", plan.identity())
    return opened


def _note_place(plan: StudyPlan, study: optuna.Study, storage: RDBStorage) -> None:
    """Note that a worker keeps the study in its folder here.

    Raises ConfigError if it did before, its trials are done, and the folder was removed since.
    """
    settings, places = plan.settings, study.user_attrs.get("places", [])
    here = f"{platform.node()}:{settings.place.resolve()}"
    removed = here in places and not (settings.place / RECORD).exists()
    if removed and any(trial.state in DONE for trial in study.get_trials(deepcopy=False)):
        confirmed = f"{settings.name}-confirm-"
        names = [n for n in optuna.get_all_study_names(storage) if n.startswith(confirmed)]
        address = make_url(str(settings.storage)).render_as_string()  # without its password
        removals = (
            f"optuna delete-study --study-name {shlex.quote(name)} --storage {shlex.quote(address)}"
            for name in (settings.name, *names)
        )
        raise ConfigError(
            f"study {settings.name} is finished in its database, but its folder {settings.place} "
            f"was removed: to start again, remove it there, too: {' && '.join(removals)}"
        )
    if here not in places:
        study.set_user_attr("places", [*places, here])


def _check_identity(plan: StudyPlan, before: Mapping[str, Any] | None) -> None:
    """Raise ConfigError for a study that was started with other settings."""
    now = json.loads(json.dumps(plan.identity()))
    if before not in (None, now):
        differ = ", ".join(key for key in now if now[key] != before.get(key))
        raise ConfigError(
            f"study {plan.settings.name} was started with another {differ}: old and new trials "
            "cannot be compared. Set another hydra.sweeper.name=..., or remove "
            f"{plan.settings.place}"
        )
