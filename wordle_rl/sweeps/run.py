"""Runs a study, from its plan to its page: one trial after another.

The same command continues a study. Started several times, the workers share the trials. A trial
whose worker died is continued in its folder. Does not work on Windows.
"""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from wordle_rl.runs.errors import fail
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.runs.paths import ROOT, shorten
from wordle_rl.runs.progress import Amount, announce, dated
from wordle_rl.sweeps.draw import build_pruner, build_sampler
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.power import tell_power
from wordle_rl.sweeps.readme import (
    PAGE,
    describe_effect,
    describe_source,
    explain_silence,
    wrap,
    write_page,
)
from wordle_rl.sweeps.record import (
    RECORD,
    Round,
    begin_record,
    open_confirmation,
    open_search,
    read_record,
    write_games,
)
from wordle_rl.sweeps.space import format_params, name_arm
from wordle_rl.sweeps.trial import WINS, Row, Trial, list_reports
from wordle_rl.sweeps.verdicts import find_winner, judge, read_study

FAILURES = 3  # failed trials in a row that stop the study
POLL = 0.5  # seconds between looks at the trials


class StudyStopped(Exception):
    """Too many trials failed; the message is one line with the cause."""


@announce("running the study")
def run_study(plan: StudyPlan, build: Callable[[dict[str, Any]], Any]) -> None:
    """Check a study, say what it costs and can find, run what is left, and show what it found.

    build: the work of a run. Raises ValueError for a wrong config.
    """
    settings, folder = plan.settings, plan.settings.place
    before = read_record(folder)
    plan.check_identity(before.get("identity"))
    plan.check_needs()
    build_pruner(settings.pruner)
    if settings.sampler is not None:
        build_sampler(settings.sampler, 0)
    with announce("checking each arm of the study"):
        works = plan.check(build)
    if not before:
        print(f"{plan.n_trials} trials, each with its output.log. In the first,\n{works[0]}")
        tell_power(plan)
    try:
        failures = run_trials(plan)
    except StudyStopped as error:
        fail(str(error), code=1)
    print_verdicts(folder)
    page = folder / PAGE
    if not page.exists() or read_record(folder) != before:
        with announce("writing the page of the study"):
            write_page(folder)
    print(f"\nreport: {page}", flush=True)
    if failures:
        hint = f"{failures} trials failed; run the same command to try them again"
        fail(f"study {settings.name}: {hint}", code=1)


def run_trials(plan: StudyPlan) -> int:
    """Do what is left of a study: its search, then winner and default with fresh seeds.

    Returns how many trials have no result. Ctrl-C and SIGTERM let the runs save, and end the
    command. Raises ConfigError and StudyStopped.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        begin_record(plan)
        search = open_search(plan)
        if count := plan.n_trials - search.count_left():
            print(f"{count} finished trials come from {plan.settings.place / RECORD}")
        try:
            failures = _run_round(search)
            if plan.settings.confirm_seeds and (confirmation := _find_winner(search)):
                failures += _run_round(confirmation)
        finally:
            write_games(plan)
    print(f"study {plan.settings.name} {'has ended' if failures else 'is finished'}")
    return failures


def _find_winner(search: Round) -> Round | None:
    """The confirmation of the search's winner, if it has one."""
    plan = search.plan
    write_games(plan)
    if (number := find_winner(read_study(plan.settings.place))) is None:
        return None
    [winner] = [plan.pick(row) for row in search.list_rows() if row["trial"] == number]
    print(f"fresh seeds for the winner, {name_arm(winner, plan.space)}")
    return open_confirmation(plan, number, winner)


def _run_round(part: Round) -> int:
    """Run trials until all are done, here or elsewhere. Returns how many have no result."""
    trials: list[Trial] = []  # that run here
    causes: list[str | None] = []  # of the failures of ended trials
    total = rest = part.count_left()

    def tell() -> str:
        texts = [f"trial {trial.number}: {trial.seen}" for trial in trials]
        return "; ".join(texts) or "waiting for other workers"

    def count() -> Amount:
        return Amount(round(total - rest + sum(trial.done for trial in trials), 1), total)

    with announce(tell, count, every=60.0), Interrupts() as signals:
        signals.hold()
        try:
            while _fill(part, trials):
                for trial in [*trials]:
                    if (result := trial.step()) is not None:
                        trials.remove(trial)
                        part.end(trial, result)
                        rest = part.count_left()
                        end = f"{_name(trial, part)}  {_format_end(result)}  {rest} to go"
                        print(dated(end), flush=True)
                        causes.append(result.get("cause"))
                        _check_failures(part, causes[-FAILURES:])
                signals.check()
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
    return part.count_left()


def _fill(part: Round, trials: list[Trial]) -> bool:
    """Take trials for all jobs of this worker. Returns whether any run, here or elsewhere."""
    while len(trials) < part.plan.settings.jobs:
        trial, running = part.take()
        if trial is None:
            return running  # other workers have the rest, and may die
        verb = "resumes" if trial.path else "starts"
        print(dated(f"{_name(trial, part)}  {verb} in {shorten(trial.folder)}"), flush=True)
        trials.append(trial)
    return True


def _check_failures(part: Round, causes: list[str | None]) -> None:
    if len(causes) == FAILURES and all(causes):
        raise StudyStopped(
            f"study {part.plan.settings.name}: {FAILURES} trials failed in a row: {causes[-1]}"
        )


def _name(trial: Trial, part: Round) -> str:
    return f"trial {trial.number}  {format_params(trial.params, part.plan.space)}"


def _format_end(row: Row) -> str:
    """State and wins of a trial; of a poor one, the most before it was stopped."""
    wins = row.get(WINS) or max(list_reports(row), default=None)
    text = "" if wins is None else f"{100 * wins:.1f} %"
    return "  ".join(filter(None, [row["state"], text, row.get("cause")]))


def print_verdicts(folder: Path) -> None:
    """Print the verdicts of a study beside the shipped ones, or why it has none."""
    study = read_study(folder)
    effects, reference, by_name = judge(study), ROOT / "sweeps" / study.name, {}
    if not effects:
        print(explain_silence(study))
    if (reference / RECORD).is_file() and reference.resolve() != folder.resolve():
        by_name = {effect.name: effect for effect in judge(read_study(reference))}
    for effect in effects:
        print(f"\n{wrap(describe_effect(effect, study.measure))}")
        if effect.name in by_name:
            print(wrap(f"As shipped, {describe_effect(by_name[effect.name], study.measure)}"))
    if effects:
        print(f"\n{wrap(describe_source(study, len(effects)))}")
