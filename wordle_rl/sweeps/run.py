"""Runs a study, from its plan to its page: one trial after another.

The same command continues a study. Started several times, the workers share the trials. A trial
whose worker died is continued in its folder. Does not work on Windows.
"""

import fcntl
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna

from wordle_rl.runs.errors import fail
from wordle_rl.runs.files import open_lock
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.runs.paths import ROOT, shorten
from wordle_rl.runs.progress import Amount, announce, dated
from wordle_rl.sweeps.draw import build_pruner, build_sampler
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.power import tell_power
from wordle_rl.sweeps.queue import Round, open_confirmation, open_search
from wordle_rl.sweeps.readme import PAGE, explain_silence, wrap, write_page
from wordle_rl.sweeps.results import DONE, RECORD, WINS, Row, read_record, write_games, write_record
from wordle_rl.sweeps.space import format_params, name_arm
from wordle_rl.sweeps.trial import Trial
from wordle_rl.sweeps.verdicts import Effect, describe_effect, find_winner, judge, read_study

FAILURES = 3  # failed trials in a row that stop the study
POLL = 0.5  # seconds between looks at the trials


class StudyStopped(Exception):
    """Too many trials failed; the message is one line with the cause."""


@announce("running the study")
def run_study(plan: StudyPlan, build: Callable[[dict[str, Any]], Any]) -> None:
    """Check a study, say what it costs and can find, run what is left, and show what it found.

    build: the work of a run. Raises ValueError for a wrong config.
    """
    place = plan.settings.place
    before = read_record(place)
    _check_quickly(plan, before)
    with announce("checking each arm of the study"):
        works = plan.check(build)
    if not (place / RECORD).exists():
        _print_cost(plan, works)
        tell_power(plan)
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


def _check_quickly(plan: StudyPlan, before: Mapping[str, Any]) -> None:
    """Raise ConfigError for what is wrong before any arm is built. before: the study's record."""
    plan.check_identity(before.get("identity"))
    plan.check_needs()
    build_pruner(plan.settings.pruner)
    if plan.settings.sampler is not None:
        build_sampler(plan.settings.sampler, 0)


def _print_cost(plan: StudyPlan, works: list[Any]) -> None:
    """works: of a run of each arm."""
    trials, asked = plan.n_trials, plan.settings.n_trials
    if trials < (asked or 0):
        print(f"hydra.sweeper.n_trials={asked}: there are {trials} points")
    print(f"{trials} trials, each with its output.log. In the first,\n{works[0]}")


def run_trials(plan: StudyPlan) -> int:
    """Do what is left of a study: its search, then winner and default with fresh seeds.

    Returns how many points of a grid have no result. Ctrl-C and SIGTERM let the runs save, and end
    the command. Raises ConfigError and StudyStopped.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return Worker(plan).run()


class Worker:
    """This process, which runs several trials side by side."""

    def __init__(self, plan: StudyPlan) -> None:
        self._plan, self._settings, self._place = plan, plan.settings, plan.settings.place
        self._causes: list[str | None] = []  # of the failures of ended trials
        self._spent: list[float] = []  # seconds of done trials
        self._left = 0  # trials of the round

    def run(self) -> int:
        self._place.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self._plan.check_identity(read_record(self._place).get("identity"))
            write_record(self._plan)
        rounds = [search := open_search(self._plan)]
        if done := self._plan.n_trials - search.count_left():
            print(f"{done} finished trials come from {self._place / RECORD}")
        try:
            self._run_round(search)
            if self._settings.confirm_seeds and (confirmation := self._find_winner(search)):
                rounds.append(confirmation)
                self._run_round(confirmation)
        finally:
            self._keep_games()
        failed = sum(len(part.list_missing()) for part in rounds)
        print(f"study {self._settings.name} {'has ended' if failed else 'is finished'}")
        return failed

    def _find_winner(self, search: Round) -> Round | None:
        """The confirmation of the search's winner, if it has one."""
        self._keep_games()
        if (number := find_winner(read_study(self._place))) is None:
            return None
        [winner] = [row for row in search.list_rows() if row["trial"] == number]
        params = {name: winner[name] for name in self._plan.space}
        print(f"fresh seeds for the winner, {name_arm(params, self._plan.space)}")
        return open_confirmation(self._plan, number, params)

    def _keep_games(self) -> None:
        with self._alone():
            write_games(self._plan)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one worker at a time into the block."""
        with open_lock(self._place / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _run_round(self, part: Round) -> None:
        """Run trials until all are done, here or elsewhere."""
        trials: list[Trial] = []  # that run here
        self._left = part.count_left()

        def amount() -> Amount:
            jobs, mean = self._settings.jobs, fmean(self._spent or [math.nan])
            return Amount(
                part.plan.n_trials - self._left, part.plan.n_trials, mean * self._left / jobs
            )

        def tell() -> str:
            told = [f"trial {trial.number}: {trial.seen}" for trial in trials]
            return "; ".join(told) or "waiting for other workers"

        with announce(tell, amount, every=60.0), Interrupts() as interrupts:
            interrupts.hold()
            try:
                while self._fill(part, trials):
                    for trial in [*trials]:
                        if (found := trial.step()) is not None:
                            trials.remove(trial)
                            self._note_end(part, trial, found)
                    interrupts.check()
                    time.sleep(POLL)
            except Interrupted as signal:
                print(f"{signal}; run the same command to continue")
                raise
            finally:
                for trial in trials:
                    trial.ask_to_stop()
                for trial in trials:
                    trial.stop()
                    trial.lock.close()

    def _fill(self, part: Round, trials: list[Trial]) -> bool:
        """Take trials for all jobs of this worker. Returns whether any run, here or elsewhere."""
        while len(trials) < self._settings.jobs:
            with self._alone():
                trial, running = part.take()
            if trial is None:
                return running  # other workers have the rest, and may die
            begins = "resumes" if trial.path else "starts"
            print(dated(f"{_name(trial, part)}  {begins} in {shorten(trial.folder)}"), flush=True)
            trials.append(trial)
        return True

    def _note_end(self, part: Round, trial: Trial, found: Row) -> None:
        """Keep what came of a trial, print it, and stop when too many have failed."""
        first = {"trial": trial.number, "round": part.part}
        first |= {"state": found["state"], WINS: found[WINS], **trial.params}
        with self._alone():
            write_record(self._plan, {**first, **found})
        trial.lock.close()
        self._left = part.count_left()
        if found["state"] in DONE:
            self._spent.append(time.monotonic() - trial.begin)
        end = f"{_name(trial, part)}  {_format_end(found)}  {self._left} to go"
        print(dated(end), flush=True)
        self._causes.append(found.get("cause"))
        last = self._causes[-FAILURES:]
        if len(last) == FAILURES and all(last):
            raise StudyStopped(
                f"study {self._settings.name}: {FAILURES} trials failed in a row: {last[-1]}"
            )


def _name(trial: Trial, part: Round) -> str:
    return f"trial {trial.number}  {format_params(trial.params, part.plan.space)}"


def _format_end(row: Row) -> str:
    """State and wins of a trial."""
    wins = row[WINS]
    if wins is None:  # of a poor trial, those before it was stopped
        wins = max((value for games, value in row.get("curve", []) if games > 0), default=None)
    shown = "" if wins is None else f"{100 * wins:.1f} %"
    return "  ".join(filter(None, [row["state"], shown, row.get("cause", "")]))


def print_verdicts(folder: Path) -> None:
    """Print the verdicts of a study beside the shipped ones, or why it has none."""
    study = read_study(folder)
    effects = judge(study)
    if not effects:
        print(explain_silence(study))
    shipped = ROOT / "sweeps" / study.name
    before: dict[str, Effect] = {}
    if (shipped / RECORD).is_file() and shipped.resolve() != folder.resolve():
        before = {effect.name: effect for effect in judge(read_study(shipped))}
    for effect in effects:
        print()
        print(wrap(describe_effect(effect, study.measure)))
        if shipped_one := before.get(effect.name):
            print(wrap(f"As shipped, {describe_effect(shipped_one, study.measure)}"))
