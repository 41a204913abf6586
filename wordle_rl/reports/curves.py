"""A picture of the curves in any file of metrics with a JSON object per line, ours or another's."""

import json
import math
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd

from wordle_rl.runs.figures import BLUE, new_figure, save_figure
from wordle_rl.runs.files import FolderError

PICTURE = ".png"  # in place of the file's extension
_STEPS = ("step", "global_step", "_step", "iteration", "iter", "update", "epoch")
_FIRST = ("win_rate", "reward", "loss", "guesses", "kl", "entropy", "lr")  # in a name
_MOST = 24  # curves in a picture
_COLUMNS = 4


def draw_file(path: Path, only: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Draw the curves of a file. Returns the picture, and a line on what it shows.

    only: patterns of the metrics to draw, such as val/*; without any, the first ones that move. A
    line that is torn at the end is left out. Raises FolderError.
    """
    rows: Any = _read_rows(path)
    curves: dict[str, Any] = {}
    names = [name for name in rows if not only or any(fnmatch(str(name), one) for one in only)]
    for name in names:
        values: Any = pd.to_numeric(rows[name], errors="coerce")
        values = values.dropna()
        if len(values) > 1 and (only or values.nunique() > 1):
            curves[str(name)] = values
    if not curves:
        raise FolderError(f"{path}: none of its metrics has two numbers that differ")
    ranking = sorted(curves, key=_rank)
    metrics, others = ranking[:_MOST], ranking[_MOST:]
    columns = min(_COLUMNS, len(metrics))
    figure = new_figure(3.4 * columns, 2.3 * math.ceil(len(metrics) / columns))
    for index, name in enumerate(metrics, 1):
        axes = figure.add_subplot(math.ceil(len(metrics) / columns), columns, index)
        axes.plot(curves[name].index, curves[name], color=BLUE, lw=1.3)
        axes.set_title(name, fontsize=9)
        axes.grid(alpha=0.25)
    figure.supxlabel(str(rows.index.name), fontsize=9)
    out = out or path.with_suffix(PICTURE)
    save_figure(figure, out)
    text = f"{len(metrics)} of {len(curves)} curves"
    if others:
        text += f"; --only '<name>*' draws others, such as {others[0]}"
    return out, text


def _rank(name: str) -> int:
    """Place of a metric: what most people look at comes first."""
    return next((i for i, part in enumerate(_FIRST) if part in name.lower()), len(_FIRST))


def _read_rows(path: Path) -> pd.DataFrame:
    """A column for each entry of the rows, nested ones as a.b. The index is the step or the row."""
    rows: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line) if line.strip() else {}
            except ValueError:
                row = None
            if isinstance(row, dict):
                rows.append(row)
            elif file.read(1):  # a torn line is forgiven when nothing follows
                raise FolderError(f"{path} line {number}: not a JSON object")
    table: Any = pd.json_normalize(rows)
    steps = [name for name in _STEPS if name in table and table[name].notna().all()]
    if not steps:
        return table.rename_axis("row")
    return table.set_index(steps[0]).sort_index(kind="stable")
