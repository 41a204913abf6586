"""Pictures of how a run learns: python -m wordle_rl.plot_wins outputs/<run> [--out PNG].

One run: training games won so far, and the share won over steps, on training and validation
secrets. Several runs: their validation curves in one picture. Reads metrics.jsonl and nothing else,
so it also works while a run trains. Needs matplotlib.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.runs.errors import fail, fail_without_library, run_plain
from wordle_rl.runs.files import StepLog, write_bytes
from wordle_rl.runs.untrusted import FolderError, check_entries, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TRAINING, _VALIDATION, _TEST, _GREY = "#3a6ea5", "#d1603d", "#3f8f5b", "#8a8a8a"
_RATES = ("train/win_rate", "val/win_rate", "watch/train/win_rate", "watch/test/win_rate")
_MOST = {  # of what is drawn
    **dict.fromkeys(("step", "train/games", "train/wins"), 1e12),
    **dict.fromkeys(_RATES, 1.0),
}
_DOTS = 150  # dots per inch


class PlotError(ValueError):
    """A picture cannot be drawn; the message is one line that names the file and the reason."""


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
    val = [(r["step"], r["val/win_rate"]) for r in records if r.get("val/win_rate") is not None]
    if not train and not val:
        raise PlotError(f"{path}: no metrics of wins yet (train/win_rate, val/win_rate)")
    steps, wins, games = np.array(train, float).reshape(-1, 3).T
    val_steps, val_rates = np.array(val, float).reshape(-1, 2).T
    return WinCurves(
        name=_shown(folder.resolve().name),
        steps=steps,
        wins=wins,
        games=games,
        val_steps=val_steps,
        val_rates=val_rates,
        watched={k: _watched(records, k) for k in ("train", "test")},
    )


def _check(path: Path, record: dict[str, Any]) -> None:
    """Raise FolderError unless what is drawn of a record are numbers that can be drawn."""
    check_entries(path, record, {"step": float})
    place = f"{path}: step {record['step']}"
    check_entries(place, record, dict.fromkeys(_MOST, float | None))
    for name, most in _MOST.items():
        if not 0 <= (record.get(name) or 0) <= most:
            raise FolderError(f"{place}: {name} must be 0..{most:g}, not {record[name]}")


def _shown(name: str) -> str:
    """A name that is not taken for commands to a terminal, or for a formula by matplotlib."""
    return printable(name).replace("$", r"\$")


def _watched(records: list[dict[str, Any]], which: str) -> np.ndarray:
    key = f"watch/{which}/win_rate"
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


def draw_run(curves: WinCurves, out: Path) -> None:
    """Write the picture of one run as a PNG: wins so far above, the share won below."""
    figure, (above, below) = _figure(2)
    if len(curves.steps):
        steps, wins = curves.steps, np.cumsum(curves.wins)
        above.plot(steps, np.cumsum(curves.games), color=_GREY, lw=1.2, ls="--", label="played")
        above.plot(steps, wins, color=_TRAINING, lw=2, label="won")
        above.fill_between(steps, wins, color=_TRAINING, alpha=0.12)
        window = max(1, len(steps) // 20)
        mean = 100 * smoothed_rate(curves.wins, curves.games, window)
        label = "training" if window == 1 else f"training, mean of {window} steps"
        raw = 100 * curves.wins / curves.games
        below.plot(steps, raw, color=_TRAINING, alpha=0.25, lw=1, label="training, each step")
        below.plot(steps, mean, color=_TRAINING, lw=2, label=label)
    if len(curves.val_steps):
        dots = {"color": _VALIDATION, "marker": "o", "ms": 4.5, "lw": 1.5}
        below.plot(curves.val_steps, 100 * curves.val_rates, label="validation", **dots)
    for which, colour in (("train", _TRAINING), ("test", _TEST)):
        steps, rates = curves.watched[which]
        if len(steps):
            dots = {"color": colour, "marker": "s", "ms": 4, "lw": 1.2, "ls": ":"}
            below.plot(steps, 100 * rates, label=f"{which}, greedy", **dots)
    above.set_title(curves.name, loc="left", fontsize=11, fontweight="bold")
    above.set_ylabel("training games")
    _finish(above)
    _finish(below, share=True)
    _save(figure, out)


def draw_runs(runs: Sequence[WinCurves], out: Path) -> None:
    """Write the validation curves of several runs into one PNG.

    Raises PlotError when none of them has a validation.
    """
    shown = [curves for curves in runs if len(curves.val_steps)]
    if not shown:
        raise PlotError(f"{runs[0].name} and the other runs: no val/win_rate yet")
    from matplotlib import colormaps

    figure, (axes,) = _figure(1)
    # ten colours can be told apart; more runs shade into each other in the order they were named
    colours = colormaps["tab10"] if len(shown) <= 10 else colormaps["viridis"]
    for i, curves in enumerate(shown):
        colour = colours(i if len(shown) <= 10 else i / (len(shown) - 1))
        dots = {"color": colour, "marker": "o", "ms": 4, "lw": 1.5, "label": curves.name}
        axes.plot(curves.val_steps, 100 * curves.val_rates, **dots)
    axes.set_title("Validation secrets", loc="left", fontsize=11, fontweight="bold")
    _finish(axes, share=True)
    _save(figure, out)


def _figure(panels: int) -> tuple[Figure, list[Axes]]:
    # a bare Figure draws with Agg and, unlike pyplot, leaves no state behind in the process
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 1.4 + 2.9 * panels), layout="constrained")
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)
    return figure, list(axes[:, 0])


def _finish(axes: Axes, *, share: bool = False) -> None:
    if share:
        axes.set_ylabel("games won (%)")
        axes.set_ylim(0, 102)
        axes.set_xlabel("training step")
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9)


def _save(figure: Figure, out: Path) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=_DOTS)
    write_bytes(out, picture.getvalue())


def _distinct_names(runs: Sequence[WinCurves], folders: Sequence[Path]) -> list[WinCurves]:
    """Trials of two studies share their names; those are told apart by their paths."""
    names = [curves.name for curves in runs]
    return [
        replace(curves, name=_shown(str(folder))) if names.count(curves.name) > 1 else curves
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
    options = parser.parse_args(arguments)
    first = options.runs[0]
    several = len(options.runs) > 1
    out = options.out or (first.parent if several else first) / "wins.png"
    try:
        runs = [read_curves(folder) for folder in options.runs]
        if several:
            draw_runs(_distinct_names(runs, options.runs), out)
        else:
            draw_run(runs[0], out)
    except PlotError as error:
        fail(str(error))
    except ImportError as error:
        fail_without_library(error)
    except OSError as error:
        fail(f"{out}: cannot be written ({error.strerror})")
    print(printable(str(out)))
    return 0


if __name__ == "__main__":
    run_plain(main)
