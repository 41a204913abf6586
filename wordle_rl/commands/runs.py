"""wordle-rl runs: the runs in a folder, killed ones named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wordle_rl.runs.paths import ROOT

if TYPE_CHECKING:
    from wordle_rl.runs.folder import RunFolder

_COLUMNS = ("run", "model", "reward", "steps", "val %", "test %", "status")


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
    found = sorted((describe_run(run) for run in list_runs(folder)), reverse=True)
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    for _, cells in found:
        table.add_row(*cells)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 1_000  # so that a name stays in one piece
    console.print(table if found else f"{folder}: no runs yet")


def describe_run(run: RunFolder) -> tuple[str, list[str]]:
    """When a run began, and its cells in the table. A damaged folder comes last."""
    from wordle_rl.runs.files import read_object
    from wordle_rl.runs.folder import BROKEN, given_name

    try:
        manifest, records = run.manifest(), run.metrics_log().read()
        end = run.path / "summary.json"
        test = read_object(end).get("win_rate") if end.exists() else None
        rates = [rate for r in records if (rate := r.get("val/win_rate")) is not None]
        wins = ["-" if r is None else f"{100 * r:.1f}" for r in (max(rates, default=None), test)]
        start, choices = manifest.get("init_from"), manifest.get("choices", {})
        model = f"of {given_name(Path(start['run']).name)}" if start else choices.get("model", "-")
        killed = manifest["status"] == "running" and not run.is_locked()
        steps, status = str(records[-1]["step"] if records else 0), manifest["status"]
        cells = [run.path.name, model, choices.get("reward", "-"), steps, *wins]
        return manifest["started"], [*cells, "killed" if killed else status]
    except BROKEN:
        return "", [run.path.name, *"-----", "unreadable"]
