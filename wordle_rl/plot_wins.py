"""Pictures of how a run learns: python -m wordle_rl.plot_wins outputs/<run> [--out PNG].

One run: the share of games won over steps, on training and validation secrets, and the reports on
the test secrets. With trainer.watch_every, also the gap between training and test secrets. --beside
adds the solvers that eval.py played, --guesses the mean guesses, --totals the games won so far.
Several runs: their validation curves in one picture. It reads run folders only and also works while
a run trains. Needs matplotlib.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.pictures import (
    PlotError,
    new_figure,
    one_line_errors,
    plain_text,
    read_solvers,
    save_figure,
    shade_gap,
)
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.untrusted import printable
from wordle_rl.win_curves import GUESSES, WinCurves, read_curves, smoothed_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAINING, _VALIDATION, _TEST, _GREY = "#3a6ea5", "#d1603d", "#3f8f5b", "#8a8a8a"
_DOTS: dict[str, Any] = {"color": _VALIDATION, "marker": "o", "ms": 4.5, "lw": 1.5}
# Of the solvers' lines. The last has a dash and three dots.
_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 2, 1, 2, 1, 2, 1, 2)))


def draw_run(
    curves: WinCurves,
    out: Path,
    *,
    title: str = "",
    solvers: Mapping[str, float] | None = None,
    guesses: bool = False,
    totals: bool = False,
) -> None:
    """Write the picture of one run as a PNG: the share of games won over its steps.

    solvers: win rate of each, drawn as a level line. guesses, totals: also their panels, below.
    Raises PlotError when guesses are asked for and no games outside training were logged.
    """
    panels = [_draw_guesses] * guesses + [_draw_totals] * totals
    figure = new_figure(8.5, 4.8 + 2.8 * len(panels))
    axes, *below = figure.subplots(1 + len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for draw, panel in zip(panels, below, strict=True):
        draw(panel, curves)
    for i, (name, rate) in enumerate((solvers or {}).items()):
        dashes = _DASHES[i % len(_DASHES)]
        axes.axhline(
            100 * rate, color=_GREY, lw=1.2, ls=dashes, label=f"{name}, {100 * rate:.1f} %"
        )
    if len(curves.steps):
        window = max(1, len(curves.steps) // 20)
        mean = 100 * smoothed_rate(curves.wins, curves.games, window)
        label = "training" if window == 1 else f"training, mean of {window} steps"
        axes.plot(curves.steps, mean, color=_TRAINING, lw=1.5, alpha=0.7, label=label)
    if len(curves.val_steps):
        axes.plot(curves.val_steps, 100 * curves.val_rates, label="validation", **_DOTS)
    percent = {which: points * [[1], [100]] for which, points in curves.watched.items()}
    _draw_watched(axes, percent, "points")
    if len(curves.reports):
        steps, rate, low, high = curves.reports.T * [[1], [100], [100], [100]]
        error = np.maximum([rate - low, high - rate], 0)
        bars = {"color": _TEST, "fmt": "D", "ms": 6, "lw": 1.5, "capsize": 4}
        axes.errorbar(steps, rate, error, label="test secrets, greedy, 95 % interval", **bars)
        figure.supxlabel(textwrap.fill(plain_text(curves.lineage), 120), fontsize=8, color=_GREY)
    _finish(axes, plain_text(title) or f"Games won: {curves.name}")
    save_figure(figure, out)


def _draw_watched(axes: Axes, watched: Mapping[str, np.ndarray], unit: str) -> None:
    """Draw the curves of greedy games on training and test secrets, and the gap between them."""
    for which, colour in (("train", _TRAINING), ("test", _TEST)):
        steps, values = watched[which]
        if len(steps):
            dots = {"color": colour, "marker": "s", "ms": 4, "lw": 1.2, "ls": ":"}
            axes.plot(steps, values, label=f"{which} secrets, greedy", **dots)
    shade_gap(axes, watched["train"], watched["test"], colour=_GREY, unit=unit)


def _draw_guesses(axes: Axes, curves: WinCurves) -> None:
    if not any(points.size for points in curves.guesses.values()):
        raise PlotError(f"{curves.name}: no {GUESSES} yet (val/..., watch/...)")
    steps, means = curves.guesses["val"]
    if len(steps):
        axes.plot(steps, means, label="validation", **_DOTS)
    _draw_watched(axes, curves.guesses, "guesses")
    _finish(axes, "Mean guesses, a lost game as one more than the turns", "guesses")
    axes.autoscale(axis="y")  # means differ by little, far from 0


def _draw_totals(axes: Axes, curves: WinCurves) -> None:
    steps, wins = curves.steps, np.cumsum(curves.wins)
    axes.plot(steps, np.cumsum(curves.games), color=_GREY, lw=1.2, ls="--", label="played")
    axes.plot(steps, wins, color=_TRAINING, lw=2, label="won")
    axes.fill_between(steps, wins, color=_TRAINING, alpha=0.12)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    _finish(axes, "Training games so far", "games")


def draw_runs(runs: Sequence[WinCurves], out: Path, *, title: str = "") -> None:
    """Write the validation curves of several runs into one PNG.

    Raises PlotError when none of them has a validation.
    """
    shown = [curves for curves in runs if len(curves.val_steps)]
    if not shown:
        raise PlotError(f"{runs[0].name} and the other runs: no val/win_rate yet")
    from matplotlib import colormaps

    figure = new_figure(8.5, 4.3)
    axes = figure.subplots()
    # ten colours can be told apart; more runs shade into each other in the order they were named
    colours = colormaps["tab10"] if len(shown) <= 10 else colormaps["viridis"]
    for i, curves in enumerate(shown):
        colour = colours(i if len(shown) <= 10 else i / (len(shown) - 1))
        dots = {"color": colour, "marker": "o", "ms": 4, "lw": 1.5, "label": curves.name}
        axes.plot(curves.val_steps, 100 * curves.val_rates, **dots)
    _finish(axes, plain_text(title) or "Games won on validation secrets")
    save_figure(figure, out)


def _finish(axes: Axes, title: str, unit: str = "games won (%)") -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_ylabel(unit)
    axes.set_ylim(0, 102 if "%" in unit else None)
    axes.set_xlabel("training step")
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))


def _distinct_names(runs: Sequence[WinCurves], folders: Sequence[Path]) -> list[WinCurves]:
    """Runs of the same name are labelled with their paths."""
    names = [curves.name for curves in runs]
    return [
        replace(curves, name=plain_text(str(folder))) if names.count(curves.name) > 1 else curves
        for curves, folder in zip(runs, folders, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m wordle_rl.plot_wins", description="Draw the wins of a run as a PNG."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder, or several")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PNG",
        help="where to write; default <RUN>/wins.png, or wins.png beside the first of several",
    )
    parser.add_argument("--title", default="", help="default: the name of the run")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="EVAL",
        help="folder that eval.py wrote, whose solvers are drawn beside a single run",
    )
    parser.add_argument("--guesses", action="store_true", help="also draw the mean guesses")
    parser.add_argument("--totals", action="store_true", help="also draw the games won so far")
    options = parser.parse_args(arguments)
    first = options.runs[0]
    several = len(options.runs) > 1
    if several and options.beside is not None:
        parser.error("--beside takes a single run")
    if several and options.guesses:
        parser.error("--guesses takes a single run")
    out = options.out or (first.parent if several else first) / "wins.png"
    with one_line_errors(out):
        runs = [read_curves(folder) for folder in options.runs]
        if several:
            draw_runs(_distinct_names(runs, options.runs), out, title=options.title)
        else:
            solvers = None if options.beside is None else read_solvers(options.beside)
            panels = {"guesses": options.guesses, "totals": options.totals}
            draw_run(runs[0], out, title=options.title, solvers=solvers, **panels)
    print(printable(str(out)))
    return 0


if __name__ == "__main__":
    run_plain(main)
