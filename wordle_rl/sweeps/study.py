"""A study from its plan to its page: the sequence behind python train.py -m sweep=<study>."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from wordle_rl.runs.errors import fail
from wordle_rl.runs.paths import ROOT
from wordle_rl.runs.terminal import columns
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.power import check_power
from wordle_rl.sweeps.readme import list_arms, write_page
from wordle_rl.sweeps.results import RECORD, SEARCH, TABLE
from wordle_rl.sweeps.run import StudyStopped, run_trials
from wordle_rl.sweeps.verdicts import Effect, judge, read_study

_SHOWN = ("arm", "seeds", "validation wins %", "test wins %", "mean guesses (test)", "minutes")


def run_study(plan: StudyPlan, build: Callable[[dict[str, Any]], object]) -> None:
    """Check a study, say what it can find, run what is left of it, and show what it found.

    build: raises ValueError for a config that cannot be trained. Raises ConfigError, and ends the
    command when too many trials fail.
    """
    plan.check(build)
    if not (plan.settings.place / RECORD).exists():
        check_power(plan)
    try:
        run_trials(plan)
    except StudyStopped as error:
        fail(str(error), code=1)
    print_verdicts(plan.settings.place)
    print(f"\nreport: {write_page(plan.settings.place)}", flush=True)


def print_verdicts(folder: Path) -> None:
    """Print the arms of a study, and its verdicts beside the shipped ones."""
    study = read_study(folder)
    shipped = ROOT / "sweeps" / study.name
    before: dict[str, Effect] = {}
    if (shipped / TABLE).is_file() and shipped.resolve() != folder.resolve():
        before = {effect.name: effect for effect in judge(read_study(shipped))}
    arms = list_arms(study.select(SEARCH), study.default)
    places = [place for place, title in enumerate(arms[0]) if title in _SHOWN]
    _print_table([[row[place] for place in places] for row in arms])
    rows = [
        [effect.name, *(_describe(one) for one in (effect, before.get(effect.name)) if one)]
        for effect in judge(study)
    ]
    if rows:
        _print_table([["comparison", "here", *(["shipped"] if before else [])], *rows])


def _describe(effect: Effect) -> str:
    ends = f"{effect.low:+.2f} to {effect.high:+.2f}"
    return f"{effect.verdict}, {effect.difference:+.2f} ({ends})"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """rows: titles first."""
    table = Table(box=None, pad_edge=False)
    for title in rows[0]:
        table.add_column(title, overflow="fold")
    for row in rows[1:]:
        table.add_row(*row)
    print()
    Console(width=columns(), highlight=False, markup=False).print(table)
