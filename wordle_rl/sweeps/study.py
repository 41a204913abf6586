"""Runs a study: takes one trial after another from Optuna's ledger until none is left.

Start the command again, and it continues the study. Start it several times, on one machine or
several, and the workers share the trials. A trial whose worker died is queued again by Optuna when
its heartbeat is old, and continues in its folder. Does not work on Windows.
"""

from __future__ import annotations

import fcntl
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.sweeps import progress
from wordle_rl.sweeps.ledger import (
    RETRIES,
    build_sampler,
    find_address,
    open_storage,
    show_address,
)
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.records import (
    CONFIRMATION,
    TABLE,
    Trials,
    read_point,
    write_games,
    write_record,
    write_results,
)
from wordle_rl.sweeps.rounds import (
    DONE,
    LIVE,
    Round,
    build_confirmation,
    build_search,
    find_winner,
    load_study,
    open_round,
)
from wordle_rl.sweeps.trial import TrialFailed, TrialKilled, TrialRuns

FAILURES = 3  # failed trials in a row that stop the study


class StudyStopped(Exception):
    """Too many trials failed; the message is one line with the cause."""


class _TrialStopped(Exception):
    """The worker was asked to stop; another command will continue the trial."""


class _TrialTaken(Exception):
    """Another worker believed this one dead and took its trial."""


def run_study(plan: StudyPlan, print_line: Callable[[str], None] = progress.print_line) -> None:
    """Do what is left of a study: its search, then winner and default with fresh seeds.

    Ctrl-C and SIGTERM let the runs save, and end the command with 130 and 143. Raises ConfigError
    and StudyStopped.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", "Heartbeat of storage")  # Worker records it
        Worker(plan, print_line).run()


class Worker:
    """This process: its threads run trials side by side, each with one run at a time."""

    def __init__(self, plan: StudyPlan, print_line: Callable[[str], None]) -> None:
        self._plan, self._settings, self._print = plan, plan.settings, print_line
        self._folder = plan.settings.place
        build_sampler(self._settings.sampler, 0)  # so that a wrong one is found here
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._alone():  # the first one creates the tables
            self._storage = open_storage(self._settings)
        self._rounds: dict[str, optuna.Study] = {}
        self._stop = threading.Event()
        self._outcomes: list[tuple[int, str | None]] = []  # number and cause of the failure

    def run(self) -> None:
        plan = self._plan
        search = build_search(plan)
        with self._alone():
            study, taken = open_round(self._storage, search, plan)
            self._rounds[search.part] = study
            if taken:
                self._print(f"{taken} finished trials come from {self._folder / TABLE}")
            shown = show_address(self._settings) if self._settings.storage else None
            address = find_address(self._settings)
            command = [argument.replace(address, shown or address) for argument in sys.argv]
            write_record(self._folder, plan, shown, command)
        try:
            self._run_round(search)
            best = find_winner(study.get_trials(deepcopy=False))
            if best is not None and self._settings.confirm_seeds:
                confirmation = build_confirmation(plan, best)
                with self._alone():
                    confirm, _ = open_round(self._storage, confirmation, plan)
                    self._rounds[confirmation.part] = confirm
                if confirmation.left(confirm.get_trials(deepcopy=False)):
                    self._print(progress.format_confirmation(best, self._settings.confirm_seeds))
                self._run_round(confirmation)
        finally:
            with self._alone():
                write_results(self._folder, self._list_trials())
                every = self._settings.analysis.measure.endswith("_over_time")
                write_games(self._folder, self._list_trials(), every=every)
        trials = study.get_trials(deepcopy=False)
        if any(trial.state == TrialState.COMPLETE for trial in trials):
            self._print(f"\n{progress.format_arms(trials)}\n")
        failed = len(search.list_missing(trials))
        self._print(progress.format_ending(study.study_name, best, trials, failed))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread of this machine at a time into the block.

        Optuna relies on SELECT ... FOR UPDATE to give a trial to one worker alone, which sqlite
        ignores.
        """
        with open(self._folder / ".lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _list_trials(self) -> Trials:
        return {part: s.get_trials(deepcopy=False) for part, s in self._rounds.items()}

    def _run_round(self, part: Round) -> None:
        """Run trials until all are done, here or elsewhere."""
        with Interrupts() as interrupts, ThreadPoolExecutor(self._settings.jobs) as pool:
            interrupts.hold()
            futures = [pool.submit(self._run_trials, part) for _ in range(self._settings.jobs)]
            try:
                while wait(futures, 0.1, FIRST_EXCEPTION).not_done:
                    interrupts.check()
                    if any(future.done() and future.exception() for future in futures):
                        break
            except Interrupted as signal:
                self._print(f"{signal}; run the same command to continue")
                raise
            finally:
                self._stop.set()
        for future in futures:
            future.result()
        self._stop.clear()

    def _run_trials(self, part: Round) -> None:
        """Run one trial after another."""
        study = load_study(self._storage, part)
        while not self._stop.is_set():
            if (trial := self._take_trial(part, study)) is not None:
                self._run_trial(part, study, trial)
            elif any(t.state in LIVE for t in study.get_trials(deepcopy=False)):
                self._stop.wait(self._settings.poll)  # other workers have the rest, and may die
            else:
                return

    def _take_trial(self, part: Round, study: optuna.Study) -> optuna.Trial | None:
        """A trial for this thread alone, with its parameters; None when there is none to take."""
        with self._alone():
            optuna.storages.fail_stale_trials(study)
            states = [t.state for t in study.get_trials(deepcopy=False)]
            drawn = sum(state in (*DONE, TrialState.RUNNING) for state in states)
            queued = TrialState.WAITING in states
            if not queued and (part.points is not None or drawn >= part.n_trials):
                return None
            trial = study.ask()
            self._storage.record_heartbeat(trial._trial_id)
            if part.points is not None and not read_point(self._read(trial)):
                study.tell(trial, state=TrialState.FAIL)  # others were faster: the queue is empty
                return None
            study.sampler = build_sampler(part.sampler, trial.number)
            trial = optuna.Trial(study, trial._trial_id)
            for name, item in part.space.items():
                trial._suggest(name, item)
            return trial

    def _run_trial(self, part: Round, study: optuna.Study, trial: optuna.Trial) -> None:
        """Run a trial and tell Optuna what came of it."""
        number = RetryHeartbeatStaleTrialCallback.retried_trial_number(self._read(trial))
        number = trial.number if number is None else number
        folder = self._folder / "trials" / ("confirm" if part.part == CONFIRMATION else "")
        runs = TrialRuns(
            trial, folder / f"{number:04d}", part.stages(trial.params), self._settings,
            pause=self._beat(trial),
        )  # fmt: skip
        frozen = self._read(trial)
        self._print(progress.format_start(frozen, folder / f"{number:04d}", resumed=runs.begun))
        value, state, cause = None, TrialState.FAIL, None
        try:
            value, state = runs.work(), TrialState.COMPLETE
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except (_TrialTaken, UpdateFinishedTrialError):
            self._print(f"trial {trial.number}: another worker took it, as no heartbeat came")
            return
        except (_TrialStopped, ConfigError) as error:
            with suppress(UpdateFinishedTrialError):
                study._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
            if isinstance(error, ConfigError):  # its folder cannot be used until it is mended
                raise
            return
        except TrialFailed as error:
            cause = str(error)
            history = RetryHeartbeatStaleTrialCallback.retry_history(self._read(trial))
            if isinstance(error, TrialKilled) and len(history) < RETRIES:
                study.tell(trial, state=TrialState.FAIL)
                RetryHeartbeatStaleTrialCallback()(study, self._read(trial))
                self._print(f"trial {trial.number} was killed and is queued again: {cause}")
                return
            trial.set_user_attr("cause", cause)
        study.tell(trial, value, state, skip_if_finished=True)
        self._report_end(part, study, self._read(trial))

    def _read(self, trial: optuna.Trial) -> FrozenTrial:
        return self._storage.get_trial(trial._trial_id)

    def _beat(self, trial: optuna.Trial) -> Callable[[], None]:
        """What is called while a trial runs: shows that its worker lives, and stops the trial."""
        last = time.monotonic()

        def beat() -> None:
            nonlocal last
            if self._stop.is_set():
                raise _TrialStopped
            if time.monotonic() - last < self._settings.heartbeat:
                return
            last = time.monotonic()
            if self._read(trial).state != TrialState.RUNNING:
                raise _TrialTaken
            self._storage.record_heartbeat(trial._trial_id)

        return beat

    def _report_end(self, part: Round, study: optuna.Study, trial: FrozenTrial) -> None:
        """Print a trial's line, keep its result, and stop when too many have failed."""
        with self._alone():
            write_results(self._folder, self._list_trials())
        trials = study.get_trials(deepcopy=False)
        self._print(progress.format_trial(trial, trials, part.left(trials)))
        self._outcomes.append((trial.number, trial.user_attrs.get("cause")))
        last = self._outcomes[-FAILURES:]
        if len(last) == FAILURES and all(cause is not None for _, cause in last):
            numbers = ", ".join(str(number) for number, _ in last)
            raise StudyStopped(
                f"study {study.study_name}: trials {numbers} failed in a row: {last[-1][1]}"
            )
