"""A worker of a study: runs one trial after another until none is left, each in a child process.

Start the command again, and it continues the study. Start it several times, on one machine or
several, and the workers share the trials. Does not work on Windows.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
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
from wordle_rl.sweeps.dead_workers import WorkerLock, requeue_trial, take_over_trials
from wordle_rl.sweeps.earlier import EarlierTrials, check_power
from wordle_rl.sweeps.end_table import format_arms
from wordle_rl.sweeps.objective import TrialFailed, TrialObjective, TrialStopped, WorkerContext
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.records import StudyRecord
from wordle_rl.sweeps.results import read_results
from wordle_rl.sweeps.rounds import Round, build_confirmation, build_search, find_winner, open_round
from wordle_rl.sweeps.standby import Standby
from wordle_rl.sweeps.storage import lock_folder, open_storage

FAILURES = 3  # failed trials in a row that stop the study


class StudyStopped(Exception):
    """Too many trials failed; the message is one line with the cause."""


@dataclass(frozen=True, kw_only=True)
class StudyPaths:
    """Where a study keeps its files and its database."""

    folder: Path  # of its report
    trials: Path
    url: str

    @classmethod
    def of(cls, plan: StudyPlan) -> StudyPaths:
        settings = plan.settings
        folder = settings.report_folder
        url = settings.storage or f"sqlite:///{folder / 'study.db'}"
        trials = ROOT / (settings.trials or f"outputs/sweeps/{settings.name}")
        return cls(folder=folder, trials=trials, url=url)


def run_study(plan: StudyPlan, print_line: Callable[[str], None] = progress.print_line) -> None:
    """Do what is left of a study: its search, then winner and default with fresh seeds.

    Ctrl-C and SIGTERM let the children save, and end the command with 130 and 143. Raises
    ConfigError, ValueError for a storage that cannot be opened, and StudyStopped.
    """
    paths, settings = StudyPaths.of(plan), plan.settings
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with lock_folder(paths.folder):
        storage = open_storage(paths.url, heartbeat=settings.heartbeat, grace=settings.grace)
        search = build_search(plan, paths.trials)
        earlier = EarlierTrials.read(paths.folder, plan, print_line)
        if not earlier.results and settings.name not in optuna.get_all_study_names(storage):
            check_power(plan, paths.folder, print_line)
        study = open_round(
            storage, search, shown_address(paths.url),
            lambda study: earlier.restore_search(study, search),
        )  # fmt: skip
        _write_record(plan, paths)
    with ExitStack() as stack:
        worker = _StudyWorker(plan, storage, print_line, stack)
        worker.run_round(search, study)
        best = find_winner(study.get_trials(deepcopy=False))
        if best is not None and settings.confirm_seeds:
            confirmation = build_confirmation(plan, best, paths.trials)
            with lock_folder(paths.folder):
                confirm = open_round(
                    storage, confirmation, shown_address(paths.url),
                    lambda confirm: earlier.restore_confirmation(confirm, confirmation, study),
                )  # fmt: skip
            if not confirmation.finished(confirm.get_trials(deepcopy=False)):
                print_line(progress.format_confirmation(best, settings.confirm_seeds))
            worker.run_round(confirmation, confirm)
    results = read_results(study, confirms=False)
    if any(result.state == "complete" for result in results):
        print_line(f"\n{format_arms(results)}\n")
    trials = study.get_trials(deepcopy=False)
    failed = len(search.missing(trials))
    print_line(progress.format_ending(study.study_name, best, trials, failed))


def _write_record(plan: StudyPlan, paths: StudyPaths) -> None:
    """Write study.json, unless the study already has one."""
    settings = plan.settings
    record = StudyRecord(
        name=settings.name,
        question=settings.question,
        storage=shown_address(paths.url) if settings.storage else None,
        command=shown_command(sys.argv),
        identity=plan.identity(),
        analysis=asdict(settings.analysis),
    )
    try:
        before = StudyRecord.read(paths.folder)
    except FileNotFoundError:
        before = None
    # The command that started a study stays. A study started anew, or elsewhere, has its own.
    if before and (before.storage, before.identity) == (record.storage, record.identity):
        record = replace(record, command=before.command)
    if before is None or json.dumps(asdict(before)) != json.dumps(asdict(record)):  # order counts
        record.write(paths.folder)


class _StudyWorker:
    """This process: its threads run trials side by side, each with one child at a time."""

    def __init__(
        self,
        plan: StudyPlan,
        storage: optuna.storages.BaseStorage,
        print_line: Callable[[str], None],
        stack: ExitStack,
    ) -> None:
        self._settings, self._storage, self._stack = plan.settings, storage, stack
        self._print_line = print_line
        self._started = datetime.now()
        self._stop = threading.Event()
        self._failure: str | None = None
        self._taking = threading.Lock()  # held from looking for a trial until it is taken
        self._context: WorkerContext | None = None

    def run_round(self, part: Round, study: optuna.Study) -> None:
        """Run trials until all are done, here or elsewhere. Changes no file if all are."""
        if part.finished(study.get_trials(deepcopy=False)):
            return
        context = self._context = self._context or self._build_context(part.folder / "workers")
        with Interrupts() as interrupts, ThreadPoolExecutor(self._settings.jobs) as pool:
            interrupts.hold()
            futures = [
                pool.submit(self._run_trials, part, context) for _ in range(self._settings.jobs)
            ]
            try:
                while wait(futures, 0.1, FIRST_EXCEPTION).not_done:
                    interrupts.check()
                    if any(future.done() and future.exception() for future in futures):
                        break
            except Interrupted as signal:
                self._print_line(f"{signal}; run the same command to continue")
                raise
            finally:
                self._stop.set()
        for future in futures:
            future.result()
        if self._failure is not None:
            raise StudyStopped(self._failure)
        self._stop.clear()

    def _build_context(self, folder: Path) -> WorkerContext:
        lock = WorkerLock(folder)
        self._stack.callback(lock.close)
        standby = None
        if self._settings.command is None:
            standby = Standby([sys.executable, "-m", "wordle_rl.standby"])
            self._stack.callback(standby.close)
        return WorkerContext(
            settings=self._settings, lock=lock, stop=self._stop, print_line=self._print_line,
            count_threads=lambda study: self._count_threads(study, lock), standby=standby,
        )  # fmt: skip

    def _run_trials(self, part: Round, context: WorkerContext) -> None:
        """Run one trial after another."""
        study = part.load(self._storage)
        while not self._stop.is_set():
            take_over_trials(study)
            if part.finished(study.get_trials(deepcopy=False)):
                return
            if not self._run_trial(study, part, context):
                # Other workers have the rest, and may die.
                self._stop.wait(self._settings.poll)

    def _run_trial(self, study: optuna.Study, part: Round, context: WorkerContext) -> bool:
        """Run one trial. Returns False when there is none to take."""
        with ExitStack() as taking:
            taking.enter_context(self._taking)
            if not part.may_start(study.get_trials(deepcopy=False)):
                return False
            objective = TrialObjective(context, study, part, on_taken=taking.close)
            try:
                study.optimize(
                    objective, n_trials=1, catch=(TrialFailed,),
                    callbacks=[lambda study, trial: self._report_end(study, trial, part)],
                )  # fmt: skip
            except TrialStopped:
                requeue_trial(study, objective.read_trial(), died=False)
            except ConfigError:  # its folder cannot be used until someone mends it
                requeue_trial(study, objective.read_trial(), died=False)
                raise
            except Exception as error:
                # If others took the trial over, Optuna refuses this worker's result.
                own = error is objective.error and not isinstance(error, UpdateFinishedTrialError)
                if own or not objective.was_taken_over():
                    raise
                self._print_line("another worker took over a trial: no heartbeat came from here")
        return True

    def _report_end(self, study: optuna.Study, trial: FrozenTrial, part: Round) -> None:
        """Print a trial's line, and stop the study when too many have failed."""
        if "surplus" in trial.user_attrs:
            return
        trials = study.get_trials(deepcopy=False)
        self._print_line(progress.format_trial(trial, trials, part.left(trials)))
        ended = [
            (t.datetime_complete, t.number, t)
            for t in trials
            if t.datetime_start and t.datetime_start >= self._started
            and t.datetime_complete and _has_outcome(t)
        ]  # fmt: skip
        last = [t for *_, t in sorted(ended, key=lambda entry: entry[:2])[-FAILURES:]]
        if len(last) == FAILURES and all(t.state == TrialState.FAIL for t in last):
            numbers = ", ".join(str(t.number) for t in last)
            cause = last[-1].user_attrs["cause"]
            self._failure = f"study {study.study_name}: trials {numbers} failed in a row: {cause}"
            self._stop.set()

    def _count_threads(self, study: optuna.Study, lock: WorkerLock) -> int:
        """This worker's cores, divided by the number of children that run on them now."""
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        here = sum(map(lock.shares_cores, running))
        return max((self._settings.cores or len(lock.cores)) // max(here, self._settings.jobs), 1)


def _has_outcome(trial: FrozenTrial) -> bool:
    """Whether a trial ended by itself; false if it was stopped or its worker died."""
    return trial.state.is_finished() and (
        trial.state != TrialState.FAIL or "cause" in trial.user_attrs
    )
