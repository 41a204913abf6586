"""results.csv: a line for each trial, with all that a study needs to continue elsewhere.

The file and study.json stay when the database and the runs are gone. Both the report and the next
command of the study then read the trials from here.
"""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution

from wordle_rl.runs.files import FolderError, read_text
from wordle_rl.runs.paths import module_command
from wordle_rl.sweeps.plan import ARM
from wordle_rl.sweeps.results import Result
from wordle_rl.sweeps.space import Scalar, Space, parse_params

FILE = "results.csv"
_BEFORE, _VALUE = ("trial", "round", "state"), "val_win_rate"  # columns around the parameters
_TEXTS = ("run", "cause", "began", "ended", "lineage")  # figures that are no numbers
_STATES = ("complete", "pruned", "failed", "running", "waiting")


def read_table(folder: Path, space: Space) -> list[Result]:
    """The trials in a study's results.csv. Raises FileNotFoundError or FolderError.

    space: of the study's search, which the columns must have.
    """
    path = folder / FILE
    if not path.is_file():
        raise FileNotFoundError(path)
    rows = list(csv.DictReader(read_text(path).splitlines()))
    if not rows:
        return []
    columns = list(rows[0])
    if not {*_BEFORE, _VALUE} <= rows[0].keys():
        raise FolderError(f"{path}: not a table of trials; {module_command('study')} writes it")
    names = columns[len(_BEFORE) : columns.index(_VALUE)]
    if missing := [name for name in space if name not in names]:
        raise FolderError(f"{path}: has no column {missing[0]}, which the study varies")
    return [_read_row(path, row, names, space) for row in rows]


def _read_row(
    path: Path, row: Mapping[str, str | None], names: Sequence[str], space: Space
) -> Result:
    given = {n: v for n, v in row.items() if n not in (*_BEFORE, _VALUE, *names) and v}
    confirms = row["round"] == "confirmation"
    # A confirmation has parameters of its own, and its row leaves the columns of the search empty.
    own = [name for name in names if (row[name] if confirms else name in space)]
    if None in row.values():
        raise FolderError(f"{path}: the line of trial {str(row['trial'])[:20]!r} is cut off")
    state = str(row["state"])
    if state not in _STATES:
        raise FolderError(f"{path}: a trial's state is {', '.join(_STATES)}, not {state[:20]!r}")
    try:
        curve = json.loads(given.pop("curve", "null") or "null")
        figures: dict[str, Any] = {n: v if n in _TEXTS else float(v) for n, v in given.items()}
        if curve is not None:
            figures["curve"] = [[float(games), float(wins)] for games, wins in curve]
        return Result(
            number=int(row["trial"] or ""), confirms=confirms, state=state,
            params={name: _read_value(name, row[name] or "") for name in own},
            value=float(row[_VALUE] or "") if row[_VALUE] else None, figures=figures,
        )  # fmt: skip
    except (ValueError, TypeError):
        raise FolderError(f"{path}: trial {str(row['trial'])[:20]!r} has no numbers") from None


def _read_value(name: str, text: str) -> Scalar:
    """A parameter's value from its text; names of arms may look like numbers."""
    if name == ARM:
        return text
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"": None, "True": True, "False": False}.get(text, text)


def read_space(identity: Mapping[str, Any]) -> Space:
    """The search space in study.json."""
    arms = tuple(identity.get("arms") or {})
    texts = {name: text for name, text in identity["params"].items() if name != ARM or not arms}
    space, _ = parse_params(texts)
    if arms:
        space[ARM] = CategoricalDistribution(arms)
    return space
