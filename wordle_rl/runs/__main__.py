"""Lists the runs in a folder: python -m wordle_rl.runs [FOLDER]."""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import fail, run_plain
from wordle_rl.runs.listing import RunState, list_runs
from wordle_rl.runs.paths import ROOT, module_command
from wordle_rl.runs.untrusted import printable

_WIDTH = 1_000  # columns where the output is no terminal: a name stays in one piece


def describe_age(age: timedelta) -> str:
    """An age in its largest unit, such as 5 min or 3 h."""
    for unit, seconds in ("d", 86_400), ("h", 3_600), ("min", 60):
        if age.total_seconds() >= seconds:
            return f"{age.total_seconds() // seconds:.0f} {unit}"
    return f"{max(age.total_seconds(), 0):.0f} s"


def build_table(states: Sequence[RunState], now: datetime) -> Table:
    """The table of runs, as wide as its columns. now: with its time zone."""
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
        table.add_row(*map(printable, cells))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = CommandParser(
        prog=module_command("runs"),
        description="List the runs in a folder, newest first. val: wins of the best validation. "
        "test: wins of the report at the end.",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=ROOT / "outputs", metavar="FOLDER",
        help="default: outputs",
    )  # fmt: skip
    folder: Path = parser.parse_args(arguments).folder
    if not folder.is_dir():
        fail(f"{printable(str(folder))}: no such folder")
    states = list_runs(folder)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH
    if states:
        console.print(build_table(states, datetime.now().astimezone()))
    else:
        print(f"{printable(str(folder))}: no runs yet")
    return 0


if __name__ == "__main__":
    run_plain(main)
