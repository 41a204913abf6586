"""wordle-rl runs: the runs in a folder, killed ones named."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wordle_rl.runs.paths import ROOT

if TYPE_CHECKING:
    from rich.table import Table

    from wordle_rl.runs.listing import RunState


def runs(
    folder: Annotated[Path, typer.Argument(help="where the run folders are")] = ROOT / "outputs",
) -> None:
    """List the runs in a folder, newest first.

    val %: wins of the best validation. test %: wins of the report at the end. killed: a run whose
    process is gone; train.py resume=latest continues it.
    """
    from rich.console import Console

    from wordle_rl.runs.instantiate import ConfigError
    from wordle_rl.runs.listing import list_runs

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    states = list_runs(folder)
    if not states:
        print(f"{folder}: no runs yet")
        return
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 1_000  # so that a name stays in one piece
    console.print(build_table(states, datetime.now().astimezone()))


def build_table(states: Sequence[RunState], now: datetime) -> Table:
    """The table of runs, as wide as its columns. now: with its time zone."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("run", "model", "reward"):
        table.add_column(title, overflow="fold")
    for title in ("steps", "val %", "test %"):
        table.add_column(title, justify="right")
    table.add_column("status")
    table.add_column("age", justify="right", no_wrap=True)
    for state in states:
        rates = [state.validation_wins, state.test_wins]
        cells = [
            state.folder.name,
            *(state.model or "-", state.reward or "-"),
            "-" if state.steps is None else str(state.steps),
            *("-" if rate is None else f"{100 * rate:.1f}" for rate in rates),
            state.status,
            "-" if state.started is None else describe_age(now - state.started),
        ]
        table.add_row(*cells)
    return table


def describe_age(age: timedelta) -> str:
    """An age in its largest unit, such as 5 min or 3 h."""
    for unit, seconds in ("d", 86_400), ("h", 3_600), ("min", 60):
        if age.total_seconds() >= seconds:
            return f"{age.total_seconds() // seconds:.0f} {unit}"
    return f"{max(age.total_seconds(), 0):.0f} s"
