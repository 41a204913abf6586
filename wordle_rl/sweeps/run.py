"""Runs a study, from its plan to its page: one trial after another from Optuna's ledger.

The same command continues a study. Started several times, on one machine or several, the workers
share the trials. A trial whose worker died is queued again when its heartbeat is old, and continues
in its folder. Does not work on Windows.
"""

import fcntl
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from wordle_rl.runs.errors import fail
from wordle_rl.runs.files import open_lock
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.runs.paths import ROOT, shorten
from wordle_rl.runs.progress import Amount, announce, dated
from wordle_rl.sweeps.ledger import (
    DONE,
    LIVE,
    Round,
    build_sampler,
    open_confirmation,
    open_search,
    open_storage,
)
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.power import check_power
from wordle_rl.sweeps.readme import PAGE, explain_silence, write_page
from wordle_rl.sweeps.results import (
    CONFIRMATION,
    RECORD,
    SEARCH,
    STATES,
    read_record,
    write_games,
    write_record,
)
from wordle_rl.sweeps.space import format_params, name_arm
from wordle_rl.sweeps.trial import POLL, TrialFailed, TrialRun
from wordle_rl.sweeps.verdicts import NOTHING, Effect, find_winner, judge, read_study

FAILURES = 3  # failed trials in a row that stop the study


class StudyStopped(Exception):
    """Too many trials failed; the message is one line with the cause."""


class _TrialStopped(Exception):
    """The worker was asked to stop; another command will continue the trial."""


@announce("running the study")
def run_study(plan: StudyPlan, build: Callable[[dict[str, Any]], Any]) -> None:
    """Check a study, say what it costs and can find, run what is left, and show what it found.

    build: the work of a run. Raises ValueError for a wrong config.
    """
    with announce("checking each arm of the study"):
        works = plan.check(build)
    if not (plan.settings.place / RECORD).exists():
        trials = plan.n_trials
        if trials < (plan.settings.n_trials or 0):
            print(f"hydra.sweeper.n_trials={plan.settings.n_trials}: there are {trials} points")
        print(f"{trials} trials, each with its output.log. In the first,\n{works[0]}")
        check_power(plan)
    place = plan.settings.place
    before = read_record(place)
    try:
        failed = run_trials(plan)
    except StudyStopped as error:
        fail(str(error), code=1)
    print_verdicts(place)
    page = place / PAGE
    if not page.exists() or read_record(place) != before:
        with announce("writing the page of the study"):
            write_page(place)
    print(f"\nreport: {page}", flush=True)
    if failed:
        again = f"{failed} trials failed; run the same command to try them again"
        fail(f"study {plan.settings.name}: {again}", code=1)


def run_trials(plan: StudyPlan) -> int:
    """Do what is left of a study: its search, then winner and default with fresh seeds.

    Returns how many points of a grid have no result. Ctrl-C and SIGTERM let the runs save, and end
    the command. Raises ConfigError and StudyStopped.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", "Heartbeat of storage")  # Worker records it
        return Worker(plan).run()


class Worker:
    """This process: its threads run trials side by side, each with one run at a time."""

    def __init__(self, plan: StudyPlan) -> None:
        self._plan, self._settings, self._folder = plan, plan.settings, plan.settings.place
        build_sampler(self._settings.sampler, 0)  # so that a wrong one is found here
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rounds: list[Round] = []
        self._stop = threading.Event()
        self._causes: list[str | None] = []  # of the failures of ended trials
        with self._alone():  # the first worker creates the tables
            self._storage = open_storage(self._settings)

    def run(self) -> int:
        with self._alone():
            search = open_search(self._storage, self._plan)
            self._rounds.append(search)
            write_record(self._plan)
        if search.taken:
            print(f"{search.taken} finished trials come from {self._folder / RECORD}")
        try:
            self._run_round(search)
            if self._settings.confirm_seeds:
                # A record with a confirmation is whole; search trials that ran since cut it short.
                if all(row["round"] == SEARCH for row in read_record(self._folder)["trials"]):
                    self._keep_files()
                if (number := find_winner(read_study(self._folder))) is not None:
                    winner = search.trials[number]
                    print(f"fresh seeds for the winner, {name_arm(winner.params, search.space)}")
                    with self._alone():
                        self._rounds += [open_confirmation(self._storage, self._plan, winner)]
                    self._run_round(self._rounds[-1])
        finally:
            self._keep_files()
        failed = sum(len(part.list_missing()) for part in self._rounds)
        print(f"study {self._settings.name} {'has ended' if failed else 'is finished'}")
        return failed

    def _keep_files(self) -> None:
        with self._alone():
            write_record(self._plan, self._list_trials())
            write_games(self._plan, self._list_trials())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread of this machine at a time into the block."""
        with open_lock(self._folder / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _list_trials(self) -> dict[str, list[FrozenTrial]]:
        return {part.part: part.trials for part in self._rounds}

    def _run_round(self, part: Round) -> None:
        """Run trials until all are done, here or elsewhere."""
        self._done, self._end = _count(part)

        def amount() -> Amount:
            return Amount(self._done, part.n_trials, max(self._end - time.monotonic(), 0.0))

        jobs = self._settings.jobs
        with announce("", amount), Interrupts() as interrupts, ThreadPoolExecutor(jobs) as pool:
            interrupts.hold()
            futures = [pool.submit(self._run_trials, part) for _ in range(jobs)]
            try:
                while wait(futures, 0.1, FIRST_EXCEPTION).not_done:
                    interrupts.check()
                    if any(future.done() and future.exception() for future in futures):
                        break
            except Interrupted as signal:
                print(f"{signal}; run the same command to continue")
                raise
            finally:
                self._stop.set()
        for future in futures:
            future.result()
        self._stop.clear()

    def _run_trials(self, part: Round) -> None:
        """Run one trial after another."""
        sampler = None if part.points else self._settings.sampler
        while not self._stop.is_set():
            with self._alone():
                trial = part.take_trial(sampler)
                if trial is not None:
                    self._storage.record_heartbeat(trial._trial_id)
            if trial is not None:
                self._run_trial(part, trial)
            elif any(other.state in LIVE for other in part.trials):
                self._stop.wait(POLL)  # other workers have the rest, and may die
            else:
                return

    def _run_trial(self, part: Round, trial: optuna.Trial) -> None:
        """Run a trial and tell Optuna what came of it."""
        frozen = self._storage.get_trial(trial._trial_id)
        first = RetryHeartbeatStaleTrialCallback.retried_trial_number(frozen)
        folder = self._folder / "trials" / (part.name if part.part == CONFIRMATION else "")
        folder /= f"{trial.number if first is None else first:04d}"
        overrides = part.build_run(trial.params)
        run = TrialRun(trial, folder, overrides, self._settings, self._beat(trial))
        begins = "resumes" if run.path else "starts"
        print(
            dated(
                f"trial {trial.number}  {format_params(trial.params, part.space)}  {begins} in "
                f"{shorten(folder)}"
            ),
            flush=True,
        )
        value, state = None, TrialState.FAIL
        try:
            place = f"trial {trial.number} ({self._done + 1} of {part.n_trials})"
            with announce(lambda: f"{place}: {run.seen}", every=60.0):
                value, state = run.work(), TrialState.COMPLETE
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except (_TrialStopped, ConfigError) as error:
            with suppress(UpdateFinishedTrialError):
                self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
            if isinstance(error, ConfigError):  # its folder cannot be used until it is mended
                raise
            return
        except UpdateFinishedTrialError:
            print(f"trial {trial.number}: another worker took it, as no heartbeat came")
            return
        except TrialFailed as error:
            trial.set_user_attr("cause", str(error))
        part.study.tell(trial, value, state, skip_if_finished=True)
        self._report_end(part, self._storage.get_trial(trial._trial_id))

    def _beat(self, trial: optuna.Trial) -> Callable[[], None]:
        """What is called while a trial runs: shows that its worker lives, and stops the trial."""
        last = time.monotonic()

        def beat() -> None:
            nonlocal last
            if self._stop.is_set():
                raise _TrialStopped
            if time.monotonic() - last >= self._settings.heartbeat:
                last = time.monotonic()
                self._storage.record_heartbeat(trial._trial_id)

        return beat

    def _report_end(self, part: Round, trial: FrozenTrial) -> None:
        """Print a trial's line, keep its result, and stop when too many have failed."""
        with self._alone():
            write_record(self._plan, self._list_trials())
        self._done, self._end = _count(part)
        print(dated(_format_trial(trial, part)), flush=True)
        self._causes.append(trial.user_attrs.get("cause"))
        last = self._causes[-FAILURES:]
        if len(last) == FAILURES and all(last):
            raise StudyStopped(
                f"study {self._settings.name}: {FAILURES} trials failed in a row: {last[-1]}"
            )


def _count(part: Round) -> tuple[int, float]:
    """How many trials are done, and when all will be if as many run side by side as now."""
    spent = [t.duration.total_seconds() for t in part.trials if t.state in DONE and t.duration]
    workers = 1 + sum(t.state == TrialState.RUNNING for t in part.trials)  # called between trials
    left = sum(spent) / len(spent) * part.left() / workers if spent else math.nan
    return part.n_trials - part.left(), time.monotonic() + left


def _format_trial(trial: FrozenTrial, part: Round) -> str:
    """Number, parameters, state and wins of a trial."""
    # Optuna gives a pruned trial the value of its last report.
    value = (
        trial.value
        if trial.state == TrialState.COMPLETE
        else max(trial.intermediate_values.values(), default=None)
    )
    parts = [
        f"trial {trial.number}",
        format_params(trial.params, part.space),
        STATES[trial.state],
        "" if value is None else f"{100 * value:.1f} %",
        trial.user_attrs.get("cause", ""),
        f"{part.left()} to go",
    ]
    return "  ".join(filter(None, parts))


def print_verdicts(folder: Path) -> None:
    """Print the verdicts of a study beside the shipped ones, or why it has none."""
    study = read_study(folder)
    effects, unit = judge(study), study.measure.unit
    if not effects:
        print(explain_silence(study))
    shipped = ROOT / "sweeps" / study.name
    before: dict[str, Effect] = {}
    if (shipped / RECORD).is_file() and shipped.resolve() != folder.resolve():
        before = {effect.name: effect for effect in judge(read_study(shipped))}
    for effect in effects:
        print(f"\n{effect.name}")
        for place, one in {"here": effect, "shipped": before.get(effect.name)}.items():
            if one and one.verdict == NOTHING:
                print(f"{place:>9}: {NOTHING}, no game of the two arms differs or none is won")
            elif one:
                found = f"{one.difference:+.2f} {unit} ({one.low:+.2f} to {one.high:+.2f})"
                print(f"{place:>9}: {one.verdict}, {found}")
