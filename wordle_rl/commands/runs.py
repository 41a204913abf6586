"""wordle-rl runs: a table of runs, or the settings in which two of them differ."""

from __future__ import annotations

import textwrap
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from wordle_rl.runs.config import flatten, read_config
from wordle_rl.runs.errors import advice
from wordle_rl.runs.files import FolderError, read_object
from wordle_rl.runs.folder import RunFolder, find_run, given_name, label_run, list_runs
from wordle_rl.runs.instantiate import ConfigError, check_choice
from wordle_rl.runs.paths import ROOT

_WIN_RATE = "val/win_rate"
_HEADS = ("#", "began", "name", "made of", "algorithm", "steps", "wins %", "min", "status")
_MEASURES = ("win_rate", "win_rate_low", "win_rate_high", "mean_guesses_with_losses", "games")
_LABEL_WIDTH = 36  # characters of what a run is made of
_META_KEYS = ("name", "output_dir", "resume")  # settings that say nothing about a run
_NOTE = """run=, init_from=, resume= and wordle-rl report take a number.
wins: on test secrets before and after; val: on validation secrets, at first and at best."""


def runs(
    given: Annotated[list[str] | None, typer.Argument(metavar="[RUN RUN] [output_dir=...]")] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Write a row for each run instead, with its settings: .csv or .parquet."),
    ] = None,
) -> None:
    """List the runs, newest first, or compare the settings of two."""
    from wordle_rl.evaluation.boards import columns, tabulate

    folders = [word for word in given or () if word.startswith("output_dir=")]
    outputs = ROOT / (folders or ["=outputs"])[-1].partition("=")[2]
    names = [word for word in given or () if word not in folders]
    if len(names) not in (0, 2):
        raise ConfigError(f"runs takes two runs to compare, or none to list all, not {len(names)}")
    if to is not None:
        if names:
            raise ConfigError("--to is for all runs, not for two to compare")
        return _write_table(outputs, to)
    if names:
        paths = [find_run(run, root=Path(), outputs=outputs).path for run in names]
        rows, heads, note = _compare(*map(read_config, paths)), ("setting", *names), ""
    else:
        entries = reversed([*enumerate(list_runs(outputs), 1)])
        rows, heads, note = [[str(n), *_describe(*run)] for n, run in entries], _HEADS, _NOTE
    notice = "their settings are the same" if names else f"{outputs} has no run"
    print(f"{tabulate(heads, rows, columns(), 'left')}\n{note}".strip() if rows else notice)


def _write_table(outputs: Path, to: Path) -> None:
    """Write a row for each run: what it was, what came of it, and each setting as a column."""
    import pandas as pd

    check_choice("the ending of --to", to.suffix, (".csv", ".parquet"))
    if to.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ConfigError(f"{advice('pyarrow')}, or write --to {to.with_suffix('.csv')}")
    rows = []
    for run, manifest in list_runs(outputs):
        ends = [run.path / name for name in ("start.json", "summary.json")]
        start, end = (read_object(file) if file.is_file() else {} for file in ends)
        figures = {f"start_{name}": start.get(name) for name in _MEASURES}
        figures |= {name: end.get(name) for name in (*_MEASURES, "val_win_rate", "best_step")}
        row = {"run": run.path.name, "began": manifest["started"], "status": run.status}
        row |= {"minutes": run.seconds / 60, **figures}
        with suppress(FolderError):  # of a damaged folder, which has a row all the same
            row |= {f"setting.{k}": v for k, v in flatten(read_config(run.path)).items()}
        rows.append(row)
    table = pd.DataFrame(rows)
    if to.suffix == ".csv":
        table.to_csv(to, index=False)
    else:
        table.to_parquet(to, index=False)
    print(f"{to}: {len(rows)} runs, {table.shape[1]} columns")


def _compare(*configs: dict[str, Any]) -> list[list[str]]:
    first, second, rows = *map(flatten, configs), []
    for key in [key for key in first | second if key not in _META_KEYS]:
        values = [settings.get(key, "-") for settings in (first, second)]
        if key.endswith("._target_"):  # a class, which the name of its file tells best
            values = [value.split(".")[-2:][0] for value in values]
        if values[0] != values[1]:
            rows.append([key.removesuffix("._target_"), *values])
    return rows


def _describe(run: RunFolder, manifest: dict[str, Any]) -> list[str]:
    """The cells of a run, but for its number."""
    try:
        config, last = flatten(read_config(run.path)), run.log("metrics").last()
        wins = _count_wins(run)
    except FolderError as error:
        return ["", str(error)]
    total = config.get("trainer.steps") if config.get("trainer.epochs") == "null" else "?"
    return [
        f"{datetime.fromisoformat(manifest['started']).astimezone():%Y-%m-%d %H:%M}",
        given_name(run.path.name),
        textwrap.shorten(label_run(manifest), _LABEL_WIDTH, placeholder=" ..."),
        manifest.get("choices", {}).get("algorithm", "-"),
        f"{last['step'] if last else 0}/{total}",
        wins,
        f"{run.seconds / 60:.1f}".replace("nan", "-"),
        run.status.replace("interrupted", "stopped"),
    ]


def _count_wins(run: RunFolder) -> str:
    files = [run.path / name for name in ("start.json", "summary.json")]
    wins: Any = [read_object(file).get("win_rate") for file in files if file.is_file()]
    if len(wins) == 2 and None not in wins:
        return "{:.1f} -> {:.1f}".format(*(100 * share for share in wins))
    steps, _ = run.log("metrics").read_on(0, key=_WIN_RATE)
    rates = [step[_WIN_RATE] for step in steps]
    return f"{100 * rates[0]:.1f} -> {100 * max(rates):.1f} val" if rates else "-"
