"""Draws the wins of one run, or of several beside each other. plot_wins.py is the command."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.pictures import PlotError, plain_text, shade_gap
from wordle_rl.references import Reference
from wordle_rl.runs.figures import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    INK,
    MARKERS,
    MOST_BANDS,
    RED,
    count_on_x,
    finish_panel,
    label_axes,
    name_lines,
    name_panels,
    new_figure,
    new_panels,
    save_figure,
    write_caption,
)
from wordle_rl.win_curves import GUESSES, WinCurves, smoothed_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TRAINING, _VALIDATION, _TEST = BLUE, RED, GREEN
_DOTS: dict[str, Any] = {"color": _VALIDATION, "marker": "o", "ms": 4.5, "lw": 1.5}
# Of level lines. The last has a dash and three dots.
_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 2, 1, 2, 1, 2, 1, 2)))
_INTERVAL = "95 % interval"
_RATE = re.compile(r", [\d.]+ %$")


def draw_run(
    curves: WinCurves,
    out: Path,
    *,
    title: str = "",
    references: Sequence[Reference] = (),
    solvers: Mapping[str, float] | None = None,
    guesses: bool = False,
    totals: bool = False,
) -> None:
    """Write the picture of one run as a PNG: the share of games won over its steps.

    references: players to compare with, and solvers: win rate of each; drawn as level lines.
    guesses, totals: also their panels, below. Raises PlotError when guesses are asked for and no
    games outside training were logged.
    """
    panels = [partial(_draw_guesses, references=references)] * guesses + [_draw_totals] * totals
    figure = new_figure(9, 4.8 + 2.8 * len(panels))
    axes, *below = figure.subplots(1 + len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for draw, panel in zip(panels, below, strict=True):
        draw(panel, curves)
    _draw_start(axes, curves)
    _draw_levels(axes, {one.name: one.rate for one in references} | dict(solvers or {}))
    if len(curves.steps):
        window = max(1, len(curves.steps) // 20)
        mean = 100 * smoothed_rate(curves.wins, curves.games, window)
        of = f"{curves.games.mean():,.0f} games a step"
        of = of if window == 1 else f"mean of {window} steps with {of}"
        axes.plot(curves.steps, mean, color=_TRAINING, lw=1.5, alpha=0.7, label=f"training, {of}")
    if len(curves.val_steps):
        _draw_band(axes, curves, _VALIDATION)
        axes.plot(curves.val_steps, 100 * curves.val_rates, label="validation", **_DOTS)
    percent = {which: points * [[1], [100]] for which, points in curves.watched.items()}
    _draw_watched(axes, percent, "points")
    if len(curves.reports):
        steps, rate, low, high = curves.reports.T * [[1], [100], [100], [100]]
        error = np.maximum([rate - low, high - rate], 0)
        bars = {"color": _TEST, "fmt": "D", "ms": 6, "lw": 1.5, "capsize": 4}
        axes.errorbar(steps, rate, error, label=f"test secrets, greedy, {_INTERVAL}", **bars)
    _finish(axes, plain_text(title) or f"Games won: {curves.name}")
    for panel in [axes, *below][:-1]:
        panel.set_xlabel("")  # the lowest one has it
    write_caption(figure, _caption([curves]))
    save_figure(figure, out)


def _caption(runs: Sequence[WinCurves]) -> str:
    """What the band is and over how many, and the lineage of a single run."""
    banded = [curves for curves in runs if curves.val_bands.size]
    counts = sorted({curves.secrets for curves in banded if curves.secrets is not None})
    many = " or ".join(f"{count:,}" for count in counts)
    lines = [f"Band: {_INTERVAL} of the validation wins, n = {many} secrets."] * bool(banded)
    if len(runs) == 1 and len(runs[0].reports) and runs[0].lineage:
        lines.append(textwrap.fill(plain_text(runs[0].lineage), 120))
    return "\n".join(lines)


def _draw_band(axes: Axes, curves: WinCurves, colour: str) -> None:
    steps, low, high = curves.val_bands
    if len(steps):
        axes.fill_between(steps, 100 * low, 100 * high, color=colour, alpha=0.15, lw=0)


def _draw_start(axes: Axes, curves: WinCurves) -> None:
    if curves.start is not None:
        _draw_level(axes, "start, validation", curves.start, color=_VALIDATION, ls=":")


def _draw_levels(axes: Axes, rates: Mapping[str, float]) -> None:
    """A level line for each player, unlike the others."""
    for i, (name, rate) in enumerate(rates.items()):
        colour = INK if i >= len(_DASHES) else GREY
        _draw_level(axes, name, rate, color=colour, ls=_DASHES[i % len(_DASHES)])


def _draw_level(axes: Axes, name: str, rate: float, **style: Any) -> None:
    axes.axhline(100 * rate, lw=1.2, label=f"{name}, {100 * rate:.1f} %", **style)


def _draw_watched(axes: Axes, watched: Mapping[str, np.ndarray], unit: str) -> None:
    """Draw the curves of greedy games on training and test secrets, and the gap between them."""
    for which, colour in (("train", _TRAINING), ("test", _TEST)):
        steps, values = watched[which]
        if len(steps):
            dots = {"color": colour, "marker": "s", "ms": 4, "lw": 1.2, "ls": ":"}
            axes.plot(steps, values, label=f"{which} secrets, greedy", **dots)
    shade_gap(axes, watched["train"], watched["test"], colour=GREY, unit=unit)


def _draw_guesses(axes: Axes, curves: WinCurves, references: Sequence[Reference] = ()) -> None:
    if not any(points.size for points in curves.guesses.values()):
        raise PlotError(f"{curves.name}: no {GUESSES} yet (val/..., watch/...)")
    for one, dashes in zip(references, _DASHES, strict=False):
        label = f"{one.name}, {one.guesses:.2f}"
        axes.axhline(one.guesses, color=GREY, lw=1.2, ls=dashes, label=label)
    steps, means = curves.guesses["val"]
    if len(steps):
        axes.plot(steps, means, label="validation", **_DOTS)
    _draw_watched(axes, curves.guesses, "guesses")
    _finish(axes, "Mean guesses, a lost game as one more than the turns", "guesses a game")
    axes.autoscale(axis="y")  # means differ by little, far from 0


def _draw_totals(axes: Axes, curves: WinCurves) -> None:
    steps, wins = curves.steps, np.cumsum(curves.wins)
    axes.plot(steps, np.cumsum(curves.games), color=GREY, lw=1.2, ls="--", label="played")
    axes.plot(steps, wins, color=_TRAINING, lw=2, label="won")
    axes.fill_between(steps, wins, color=_TRAINING, alpha=0.12)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    _finish(axes, "Training games so far", "games")


def draw_runs(
    runs: Sequence[WinCurves],
    out: Path,
    *,
    title: str = "",
    references: Sequence[Reference] = (),
) -> None:
    """Write the validation curves of several runs into one PNG.

    Up to five share their axes, and more have a panel each. references: as in draw_run. Raises
    PlotError when none of them has a validation.
    """
    shown = [curves for curves in runs if len(curves.val_steps)]
    if not shown:
        raise PlotError(f"{runs[0].name} and the other runs: no val/win_rate yet")
    heading = plain_text(title) or "Games won on validation secrets"
    levels = {one.name: one.rate for one in references}
    draw = _draw_panels if len(shown) > MOST_BANDS else _draw_shared
    figure = draw(shown, heading, levels)
    write_caption(figure, _caption(shown))
    save_figure(figure, out)


def _draw_shared(shown: Sequence[WinCurves], heading: str, levels: Mapping[str, float]) -> Figure:
    figure = new_figure(9, 4.5)
    axes = figure.subplots()
    _draw_levels(axes, levels)
    for curves, colour, marker in zip(shown, COLOURS, MARKERS, strict=False):
        _draw_validation(axes, curves, colour, marker, label=curves.name)
    _finish(axes, heading)
    return figure


def _draw_panels(shown: Sequence[WinCurves], heading: str, levels: Mapping[str, float]) -> Figure:
    """A panel for each run."""
    figure, panels = new_panels(len(shown))
    for axes, curves in zip(panels, shown, strict=True):
        _draw_validation(axes, curves, _VALIDATION, "o", label="validation")
        _draw_start(axes, curves)
        _draw_levels(axes, levels)
        _finish(axes, "")
        finish_panel(axes, curves.name)
    handles, labels = panels[0].get_legend_handles_labels()
    # Each panel has its own start.
    name_panels(figure, heading, handles, [_RATE.sub("", label) for label in labels])
    return figure


def _draw_validation(
    axes: Axes, curves: WinCurves, colour: str, marker: str, *, label: str
) -> None:
    _draw_band(axes, curves, colour)
    dots = {"color": colour, "marker": marker, "ms": 4, "lw": 1.5, "label": label}
    axes.plot(curves.val_steps, 100 * curves.val_rates, **dots)


def _finish(axes: Axes, title: str, unit: str = "games won (%)") -> None:
    label_axes(axes, title, x="training step", y=unit)
    axes.set_ylim(0, 102 if "%" in unit else None)
    count_on_x(axes)
    if title:
        name_lines(axes)
