"""A worker of a study: takes trials until none is left, one child process each.

Run again, it goes on; run several times, on one machine or several, the workers share the trials.
Not for Windows.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from wordle_rl.runs.addresses import shown_address, shown_command
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps import progress
from wordle_rl.sweeps.objective import Attempt, Means, Stopped, TrialFailed
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.records import About
from wordle_rl.sweeps.rounds import Phase, confirmation, open_phase, search, winner
from wordle_rl.sweeps.storage import Worker, alone, open_storage, recover, retry

FAILURES = 3  # in a row stop the study


class StudyStopped(Exception):
    """Too many trials failed; the message is one line with the cause."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a study keeps its things."""

    folder: Path  # the notebook's
    trials: Path
    url: str

    @classmethod
    def of(cls, plan: StudyPlan) -> Places:
        settings = plan.settings
        folder = ROOT / (settings.folder or f"sweeps/{settings.name}")
        url = settings.storage or f"sqlite:///{folder / 'study.db'}"
        trials = ROOT / (settings.trials or f"outputs/sweeps/{settings.name}")
        return cls(folder=folder, trials=trials, url=url)


def run_study(plan: StudyPlan, say: Callable[[str], None] = progress.say) -> None:
    """Do what is left of a study: its trials, then winner and default with fresh seeds.

    Ctrl-C and SIGTERM let the children save and end with 130 and 143. Raises ConfigError,
    ValueError for a storage that cannot be opened, StudyStopped after failures in a row.
    """
    places, settings = Places.of(plan), plan.settings
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with alone(places.folder):
        storage = open_storage(places.url, heartbeat=settings.heartbeat, grace=settings.grace)
        phase = search(plan, places.trials)
        study = open_phase(storage, phase, shown_address(places.url))
        _describe(plan, places)
    with ExitStack() as stack:
        crew = _Crew(plan, storage, say, stack)
        crew.work(phase, study)
        best = winner(study.get_trials(deepcopy=False))
        if best is not None and settings.confirm_seeds:
            phase = confirmation(plan, best, places.trials)
            with alone(places.folder):
                confirm = open_phase(storage, phase, shown_address(places.url))
            if not phase.finished(confirm.get_trials(deepcopy=False)):
                say(progress.confirming(best, settings.confirm_seeds))
            crew.work(phase, confirm)
    trials = study.get_trials(deepcopy=False)
    lost = len(search(plan, places.trials).missing(trials))
    say(progress.ending(study.study_name, best, trials, lost, places.folder))


def _describe(plan: StudyPlan, places: Places) -> None:
    """What python -m wordle_rl.study needs to find the study again."""
    settings = plan.settings
    about = About(
        name=settings.name,
        question=settings.question,
        storage=shown_address(places.url) if settings.storage else None,
        command=shown_command(sys.argv),
        identity=plan.identity(),
    )
    try:
        before = About.read(places.folder)
    except FileNotFoundError:
        before = None
    # The command that began it stays; a study begun anew, or elsewhere, has its own.
    if before is None or (before.storage, before.identity) != (about.storage, about.identity):
        about.write(places.folder)


class _Crew:
    """The threads of this worker, each with one child at a time."""

    def __init__(
        self,
        plan: StudyPlan,
        storage: optuna.storages.BaseStorage,
        say: Callable[[str], None],
        stack: ExitStack,
    ) -> None:
        self._settings, self._storage, self._say, self._stack = plan.settings, storage, say, stack
        self._began = datetime.now()
        self._stop = threading.Event()
        self._failure: str | None = None
        self._turn = threading.Lock()  # held from looking for a trial to having it
        self._means: Means | None = None

    def work(self, phase: Phase, study: optuna.Study) -> None:
        """Until every trial is done, here or elsewhere; touches nothing when all are."""
        if phase.finished(study.get_trials(deepcopy=False)):
            return
        means = self._means = self._means or self._equipped(phase.folder / "workers")
        with Interrupts() as interrupts, ThreadPoolExecutor(self._settings.jobs) as pool:
            interrupts.hold()
            futures = [pool.submit(self._take, phase, means) for _ in range(self._settings.jobs)]
            try:
                while wait(futures, 0.1, FIRST_EXCEPTION).not_done:
                    interrupts.check()
                    if any(future.done() and future.exception() for future in futures):
                        break
            except Interrupted as signal:
                self._say(f"{signal}: the same command goes on")
                raise
            finally:
                self._stop.set()
        for future in futures:
            future.result()
        if self._failure is not None:
            raise StudyStopped(self._failure)
        self._stop.clear()

    def _equipped(self, folder: Path) -> Means:
        worker = Worker(folder)
        self._stack.callback(worker.close)
        return Means(
            settings=self._settings, worker=worker, stop=self._stop, say=self._say,
            threads=lambda study: self._threads(study, worker),
        )  # fmt: skip

    def _take(self, phase: Phase, means: Means) -> None:
        """One trial after another."""
        study = phase.load(self._storage)
        while not self._stop.is_set():
            recover(study, grace=self._settings.grace)
            if phase.finished(study.get_trials(deepcopy=False)):
                return
            if not self._one(study, phase, means):
                # the trials that others have may still come back
                self._stop.wait(self._settings.poll)

    def _one(self, study: optuna.Study, phase: Phase, means: Means) -> bool:
        """Carry out one trial; False when there is none to take."""
        with ExitStack() as turn:
            turn.enter_context(self._turn)
            if not phase.may_start(study.get_trials(deepcopy=False)):
                return False
            attempt = Attempt(means, study, phase, turn.close)
            try:
                study.optimize(
                    attempt, n_trials=1, catch=(TrialFailed,),
                    callbacks=[lambda study, trial: self._told(study, trial, phase)],
                )  # fmt: skip
            except Stopped:
                retry(study, attempt.frozen(), died=False)
            except ConfigError:  # its folder is not usable: goes on once that is mended
                retry(study, attempt.frozen(), died=False)
                raise
            except Exception as error:
                # Others may have taken this worker for dead: then its result cannot be told.
                own = error is attempt.error and not isinstance(error, UpdateFinishedTrialError)
                if own or not attempt.taken():
                    raise
                self._say("a trial was taken over by another worker, to which this one was silent")
        return True

    def _told(self, study: optuna.Study, trial: FrozenTrial, phase: Phase) -> None:
        """After each trial: its line, and whether too many have failed."""
        if "surplus" in trial.user_attrs:
            return
        trials = study.get_trials(deepcopy=False)
        self._say(progress.line(trial, trials, phase.left(trials)))
        ended = [
            (t.datetime_complete, t.number, t)
            for t in trials
            if t.datetime_start and t.datetime_start >= self._began
            and t.datetime_complete and _counts(t)
        ]  # fmt: skip
        last = [t for *_, t in sorted(ended, key=lambda entry: entry[:2])[-FAILURES:]]
        if len(last) == FAILURES and all(t.state == TrialState.FAIL for t in last):
            numbers = ", ".join(str(t.number) for t in last)
            cause = last[-1].user_attrs["cause"]
            self._failure = f"study {study.study_name}: trials {numbers} failed in a row: {cause}"
            self._stop.set()

    def _threads(self, study: optuna.Study, worker: Worker) -> int:
        """The cores that this worker may use, shared among the children that run on them now."""
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        here = sum(map(worker.shares_cores, running))
        return max((self._settings.cores or len(worker.cores)) // max(here, self._settings.jobs), 1)


def _counts(trial: FrozenTrial) -> bool:
    """Whether a trial says something about the study: not those that were stopped or that died."""
    return trial.state.is_finished() and (
        trial.state != TrialState.FAIL or "cause" in trial.user_attrs
    )
