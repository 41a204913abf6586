"""What the commands that draw pictures share: names, reports, one line per error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wordle_rl.runs.errors import fail, fail_without_library
from wordle_rl.runs.figures import plain_text
from wordle_rl.runs.folder import given_name
from wordle_rl.runs.untrusted import (
    FolderError,
    check_all_entries,
    check_entries,
    printable,
    read_object,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotError(ValueError):
    """A picture cannot be drawn; the message is one line that names the file and the reason."""


@contextmanager
def one_line_errors(out: Path) -> Iterator[None]:
    """End the command with one line when a folder cannot be read or `out` cannot be written."""
    try:
        yield
    except (PlotError, FolderError) as error:
        fail(str(error))
    except ImportError as error:
        fail_without_library(error)
    except OSError as error:
        fail(f"{out}: cannot be written ({error.strerror})")


def run_name(folder: Path) -> str:
    """The name that a run was given, without the date and the numbers of its folder."""
    return plain_text(given_name(folder.resolve().name))


def shade_gap(axes: Axes, one: np.ndarray, other: np.ndarray, *, colour: str, unit: str) -> None:
    """Shade the gap between two curves and name its last size; nothing if they share no step.

    one, other: [2, any] steps and values. The size is `one` minus `other`.
    """
    steps, first, second = np.intersect1d(one[0], other[0], return_indices=True)
    if not len(steps):
        return
    above, below = one[1][first], other[1][second]
    label = f"gap, at the end {above[-1] - below[-1]:+.3g} {unit}"
    axes.fill_between(steps, above, below, color=colour, alpha=0.15, lw=0, label=label)


def read_solvers(folder: Path) -> dict[str, float]:
    """Name and win rate of each solver in the summary.json that eval.py wrote, best first.

    Raises PlotError for a folder without them.
    """
    path = folder / "summary.json"
    try:
        others = read_object(path).get("compared_with")
    except FileNotFoundError:
        raise PlotError(f"{path}: missing; --beside takes a folder that eval.py wrote") from None
    if not isinstance(others, dict) or not others:
        raise PlotError(f"{path}: compares no players; run eval.py without compare=false")
    rates = {}
    for name, numbers in others.items():
        check_all_entries(path, {"compared_with": numbers}, {"compared_with": dict})
        check_all_entries(f"{path}: {printable(name)}", numbers, {"win_rate": float})
        rates[plain_text(name)] = float(numbers["win_rate"])
    return dict(sorted(rates.items(), key=lambda item: -item[1]))


def read_reports(folder: Path) -> np.ndarray:
    """[R, 4] of the reports that the run has made: on its start, on the model it exported."""
    rows = []
    shares = ("win_rate", "win_rate_low", "win_rate_high")
    for file, key in (("start.json", None), ("summary.json", "exported_step")):
        path = folder / file
        try:
            report = read_object(path)
        except FileNotFoundError:
            continue
        if "win_rate" in report:  # trainer.report=false leaves it out
            check_all_entries(path, report, {name: float for name in shares})
            if key is not None:
                check_all_entries(path, report, {key: int})
            rows.append([0 if key is None else report[key], *(report[name] for name in shares)])
    return np.array(rows, float).reshape(-1, 4)


def read_lineage(folder: Path) -> str:
    """The lineage of the model that the run reports on; empty if it has no report yet."""
    path = folder / "summary.json"
    try:
        summary = read_object(path)
    except FileNotFoundError:
        return ""
    check_entries(path, summary, {"lineage": str})
    return summary.get("lineage", "")
