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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.pictures import (
    PlotError,
    new_figure,
    one_line_errors,
    plain_text,
    read_lineage,
    read_reports,
    read_solvers,
    run_name,
    save_figure,
    shade_gap,
)
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.untrusted import FolderError, check_entries, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAINING, _VALIDATION, _TEST, _GREY = "#3a6ea5", "#d1603d", "#3f8f5b", "#8a8a8a"
_DOTS: dict[str, Any] = {"color": _VALIDATION, "marker": "o", "ms": 4.5, "lw": 1.5}
_DASHES = ("-", "--", "-.", ":")  # of the solvers' lines
_RATES = ("train/win_rate", "val/win_rate", "watch/train/win_rate", "watch/test/win_rate")
_GUESSES = "mean_guesses_with_losses"
_MEANS = tuple(f"{which}/{_GUESSES}" for which in ("val", "watch/train", "watch/test"))
_MOST = {  # of what is drawn
    **dict.fromkeys(("step", "train/games", "train/wins"), 1e12),
    **dict.fromkeys(_RATES, 1.0),
    **dict.fromkeys(_MEANS, 1e6),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class WinCurves:
    """Wins of one run over its steps."""

    name: str
    steps: np.ndarray  # [S] training steps, ascending
    wins: np.ndarray  # [S] training games won in each step
    games: np.ndarray  # [S] training games played in each step
    val_steps: np.ndarray  # [V] steps with a validation
    val_rates: np.ndarray  # [V] share of validation games won, 0..1
    watched: dict[str, np.ndarray]  # train, test: [2, W] steps and share of greedy games won
    guesses: dict[str, np.ndarray]  # val, train, test: [2, W] steps and mean guesses, losses as 7
    reports: np.ndarray  # [R, 4] step, share of greedy test games won, its 95 % interval
    lineage: str = ""  # of the reported model, in one line


def read_curves(folder: str | Path) -> WinCurves:
    """The curves in <folder>/metrics.jsonl.

    A record may lack the training keys (train/games with train/wins or train/win_rate) or
    val/win_rate. Raises PlotError for a missing folder and one without any of these metrics.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise PlotError(f"{folder}: no such run folder")
    path = folder / "metrics.jsonl"
    try:
        records = sorted(StepLog(path).read(), key=lambda record: record["step"])
        for record in records:
            _check(path, record)
    except FolderError as error:
        raise PlotError(str(error)) from None
    train = [(r["step"], *counts) for r in records if (counts := _wins_and_games(r))]
    val_steps, val_rates = _points(records, "val/win_rate")
    if not train and not len(val_steps):
        raise PlotError(f"{path}: no metrics of wins yet (train/win_rate, val/win_rate)")
    steps, wins, games = np.array(train, float).reshape(-1, 3).T
    return WinCurves(
        name=run_name(folder),
        steps=steps,
        wins=wins,
        games=games,
        val_steps=val_steps,
        val_rates=val_rates,
        watched={k: _points(records, f"watch/{k}/win_rate") for k in ("train", "test")},
        guesses={name.split("/")[-2]: _points(records, name) for name in _MEANS},
        reports=read_reports(folder),
        lineage=read_lineage(folder),
    )


def _check(path: Path, record: dict[str, Any]) -> None:
    """Raise FolderError unless what is drawn of a record are numbers that can be drawn."""
    check_entries(path, record, {"step": float})
    place = f"{path}: step {record['step']}"
    check_entries(place, record, dict.fromkeys(_MOST, float | None))
    for name, most in _MOST.items():
        if not 0 <= (record.get(name) or 0) <= most:
            raise FolderError(f"{place}: {name} must be 0..{most:g}, not {record[name]}")


def _points(records: list[dict[str, Any]], key: str) -> np.ndarray:
    """Steps and values of a metric where it was logged, [2, any]."""
    points = [(r["step"], r[key]) for r in records if r.get(key) is not None]
    return np.array(points, float).reshape(-1, 2).T


def _wins_and_games(record: dict[str, Any]) -> tuple[float, float] | None:
    games, wins = record.get("train/games"), record.get("train/wins")
    if wins is None and games is not None and record.get("train/win_rate") is not None:
        wins = record["train/win_rate"] * games
    return None if wins is None or not games else (wins, games)


def smoothed_rate(wins: np.ndarray, games: np.ndarray, window: int) -> np.ndarray:
    """Share of games won in the last `window` steps up to each step; [S] from two [S].

    The first steps average over what there is, so nothing later leaks into an earlier point.
    """
    if window < 1:
        raise ValueError(f"window must be 1 or more, not {window}")

    def trailing(values: np.ndarray) -> np.ndarray:
        total = np.concatenate([[0.0], np.cumsum(values)])
        ends = np.arange(1, len(values) + 1)
        return total[ends] - total[np.maximum(ends - window, 0)]

    return trailing(wins) / trailing(games)


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
        raise PlotError(f"{curves.name}: no {_GUESSES} yet (val/..., watch/...)")
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
