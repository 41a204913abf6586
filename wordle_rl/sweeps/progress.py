"""What a study prints: a line when a trial starts and when it ends, and its tables at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.table import Table

from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.page import list_arms, write_study
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.results import SEARCH
from wordle_rl.sweeps.space import format_params, name_arm
from wordle_rl.sweeps.verdicts import Effect, judge, read_study

_STATES = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
}  # fmt: skip
_WIDTH = 100  # columns at most
_SHOWN = ("arm", "seeds", "validation wins %", "test wins %", "mean guesses (test)", "minutes")


def print_line(line: str) -> None:
    print(line, flush=True)


def format_start(trial: FrozenTrial, folder: Path, *, resumed: bool) -> str:
    """resumed: some of the trial has run before, until it was stopped or killed."""
    begins, where = "resumes" if resumed else "starts", os.path.relpath(folder)
    where = str(folder) if where.startswith("..") else where
    return f"trial {trial.number}  {format_params(trial.params)}  {begins} in {where}"


def format_trial(trial: FrozenTrial, trials: Sequence[FrozenTrial], left: int) -> str:
    """Number, parameters, state, best so far, and time left.

    The time is estimated from the mean time of ended trials, with as many side by side as now.
    """
    complete = [(t.value or 0.0, t.number) for t in trials if t.state == TrialState.COMPLETE]
    value = trial.value
    if trial.state != TrialState.COMPLETE:
        value = max(trial.intermediate_values.values(), default=None)
    best = "none complete yet"
    if complete:
        wins, number = max(complete, key=lambda found: found[0])
        best = f"best {100 * wins:.1f} % (trial {number})"
    spent = [t.duration.total_seconds() for t in trials
             if t.state in (TrialState.COMPLETE, TrialState.PRUNED) and t.duration]  # fmt: skip
    time_left = ""
    if spent and left:
        workers = 1 + sum(t.state == TrialState.RUNNING for t in trials)
        time_left = f", about {sum(spent) / len(spent) * left / workers / 60:.0f} min"
    parts = [
        f"trial {trial.number}", format_params(trial.params), _STATES[trial.state],
        *([f"{100 * value:.1f} %"] if value is not None else []),
        *([trial.user_attrs["cause"]] if "cause" in trial.user_attrs else []),
        best, f"{left} to go{time_left}",
    ]  # fmt: skip
    return "  ".join(parts)


def format_ending(plan: StudyPlan, winner: FrozenTrial | None, failed: int) -> str:
    """failed: points of a grid without a result."""
    found = "no trial is complete"
    if winner:
        found = f"best on validation secrets: {name_arm(winner.params, plan.space)}"
    again = f"; {failed} failed, run the same command to try again" if failed else ""
    return f"study {plan.settings.name} is finished; {found}{again}"


def show_study(folder: Path, say: Callable[[str], None] = print_line) -> None:
    """Write the page of a study. Print its arms, and its verdicts beside the shipped ones."""
    study = read_study(folder)
    shipped = ROOT / "sweeps" / study.name
    before: dict[str, Effect] = {}
    if (shipped / "results.csv").is_file() and shipped.resolve() != folder.resolve():
        before = {effect.name: effect for effect in judge(read_study(shipped))}
    arms = list_arms(study.select(SEARCH), study.default)
    places = [place for place, title in enumerate(arms[0]) if title in _SHOWN]
    say("\n" + _format_table([[row[place] for place in places] for row in arms]))
    verdicts = [["comparison", "here", *(["shipped"] if before else [])]]
    for effect in judge(study):
        known = [before[effect.name]] if effect.name in before else []
        verdicts.append([effect.name, *map(_describe, [effect, *known])])
    if verdicts[1:]:
        say("\n" + _format_table(verdicts))
    say(f"\nreport: {write_study(folder)}")


def _describe(effect: Effect) -> str:
    ends = f"{effect.low:+.2f} to {effect.high:+.2f}"
    return f"{effect.verdict}, {effect.difference:+.2f} ({ends})"


def _format_table(rows: Sequence[Sequence[str]]) -> str:
    """The text of a table, titles first, as wide as the terminal and at most 100 columns."""
    table = Table(box=None, pad_edge=False)
    for title in rows[0]:
        table.add_column(title, overflow="fold")
    for row in rows[1:]:
        table.add_row(*row)
    out = StringIO()
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
    Console(file=out, width=width, highlight=False, markup=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
