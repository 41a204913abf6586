"""The table that a study ends with on the terminal: a row for each arm."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from wordle_rl.sweeps.means import Mean, format_mean
from wordle_rl.sweeps.records import TEST_GUESSES, TEST_WINS
from wordle_rl.sweeps.report import group_by_arm
from wordle_rl.sweeps.results import Result
from wordle_rl.sweeps.space import format_params

_WIDTH = 100  # columns at most
_COLUMNS = ("seeds", "validation wins %", "test wins %", "guesses (test)", "minutes")


def format_arms(results: Sequence[Result]) -> str:
    """Means over the seeds of each arm with their 95 % intervals, the most wins first.

    As wide as the terminal, at most 100 columns.
    """
    rows = []
    for arm, trials in group_by_arm(results):
        done = [trial for trial in trials if trial.state == "complete"]
        wins = Mean.of([trial.value for trial in done])
        test, guesses, seconds = (
            Mean.of([trial.figures.get(name) for trial in done])
            for name in (TEST_WINS, TEST_GUESSES, "seconds")
        )
        cells = (
            format_params(arm) or "all",
            str(len(done)) if len(done) == len(trials) else f"{len(done)} of {len(trials)}",
            format_mean(wins, scale=100),
            format_mean(test, scale=100),
            format_mean(guesses, digits=2),
            format_mean(seconds, scale=1 / 60),
        )
        rows.append((-1.0 if wins is None else wins.mean, cells))
    table = Table(box=None, pad_edge=False)
    table.add_column("arm", overflow="fold")
    for title in _COLUMNS:
        table.add_column(title, justify="right")
    for _, cells in sorted(rows, key=lambda row: -row[0]):
        table.add_row(*cells)
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(table)
    lines = console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]
    return "\n".join(line.rstrip() for line in lines)
