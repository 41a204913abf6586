"""wordle-rl runs: the runs in a folder, killed ones named."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wordle_rl.runs.paths import ROOT

if TYPE_CHECKING:
    from wordle_rl.runs.folder import RunFolder

_COLUMNS = ("run", "model", "reward", "steps", "val %", "test %", "status", "age")
_NUMBERS = ("steps", "val %", "test %", "age")


def runs(
    folder: Annotated[Path, typer.Argument(help="where the run folders are")] = ROOT / "outputs",
) -> None:
    """List the runs in a folder, newest first.

    val %: wins of the best validation. test %: wins of the report at the end. killed: a run whose
    process is gone; train.py resume=latest continues it.
    """
    from rich.console import Console
    from rich.table import Table

    from wordle_rl.runs.folder import list_runs
    from wordle_rl.runs.instantiate import ConfigError

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    found = sorted((describe_run(run) for run in list_runs(folder)), key=lambda one: one[0])
    if not found:
        print(f"{folder}: no runs yet")
        return
    table = Table(box=None, pad_edge=False)
    for title in _COLUMNS:
        side = "right" if title in _NUMBERS else "left"
        table.add_column(title, justify=side, overflow="fold", no_wrap=title == "age")
    for _, cells in found:
        table.add_row(*cells)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 1_000  # so that a name stays in one piece
    console.print(table)


def describe_run(run: RunFolder) -> tuple[timedelta, list[str]]:
    """The age of a run, and its cells in the table. A damaged folder comes last."""
    from wordle_rl.runs.files import read_object
    from wordle_rl.runs.folder import BROKEN, given_name, read_time

    try:
        manifest, records = run.manifest(), run.metrics_log().read()
        end = run.path / "summary.json"
        test = read_object(end).get("win_rate") if end.exists() else None
        rates = [rate for r in records if (rate := r.get("val/win_rate")) is not None]
        best = max(rates, default=None)
        wins = ["-" if rate is None else f"{100 * rate:.1f}" for rate in (best, test)]
        start, choices = manifest.get("init_from"), manifest.get("choices", {})
        model = f"of {given_name(Path(start['run']).name)}" if start else choices.get("model", "-")
        killed = manifest["status"] == "running" and not run.is_locked()
        age = datetime.now().astimezone() - read_time(manifest["started"])
        return age, [
            *(run.path.name, model, choices.get("reward", "-")),
            str(records[-1]["step"] if records else 0),
            *wins,
            *("killed" if killed else manifest["status"], describe_age(age)),
        ]
    except BROKEN:
        return timedelta.max, [run.path.name, *"-----", "unreadable", "-"]


def describe_age(age: timedelta) -> str:
    """An age in its largest unit, such as 5 min or 3 h."""
    for unit, seconds in ("d", 86_400), ("h", 3_600), ("min", 60):
        if age.total_seconds() >= seconds:
            return f"{age.total_seconds() // seconds:.0f} {unit}"
    return f"{max(age.total_seconds(), 0):.0f} s"
