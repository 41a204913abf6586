"""The learning curves of a study: mean validation wins over games, with bands over seeds."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from wordle_rl.runs.figures import (
    BLUE,
    COLOURS,
    GREY,
    MARKERS,
    MOST_BANDS,
    count_on_x,
    finish_panel,
    label_axes,
    name_lines,
    name_panels,
    new_figure,
    new_panels,
    write_caption,
)
from wordle_rl.sweeps.means import Mean
from wordle_rl.sweeps.measures import Measure
from wordle_rl.sweeps.results import Result, Study
from wordle_rl.sweeps.space import format_params

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arms = Sequence[tuple[dict[str, Any], list[Result]]]  # parameters, and trials of all seeds
WINS = "validation games won (%)"
_WIDE = 40  # characters of an arm's name in a legend
_Point = tuple[float, Mean]  # games, and wins in percent
ReadCurve = Callable[[Result], list[list[float]]]  # games, and a share (0..1), of each validation
References = Sequence[tuple[str, float]]  # name and wins, in percent, of players to compare with


def read_curve(result: Result) -> list[list[float]]:
    """Games and wins (0..1) of each validation of a trial."""
    return result.figures.get("curve") or []


def measure_curve(study: Study, measure: Measure) -> ReadCurve:
    """How to read the mean of a measure of games at each validation whose games are kept."""

    def read(trial: Result) -> list[list[float]]:
        at: dict[int, list[float]] = {}
        for game in study.games.get((trial.confirms, trial.number), ()):
            assert measure.of_game is not None
            at.setdefault(game.step, []).append(measure.of_game(game))
        numbers = [games for games, _ in read_curve(trial)]
        if len(numbers) != len(at):
            return []
        return [[g, fmean(at[step])] for g, step in zip(numbers, sorted(at), strict=True)]

    return read


def draw_curves(
    found: Arms,
    references: References = (),
    *,
    read: ReadCurve = read_curve,
    title: str = "Validation games won over training games",
    y: str = WINS,
) -> Figure | None:
    """Mean validation wins over games. More than five arms have a panel each.

    read: the curve of a trial, other than its wins. y: its name and unit.
    """
    if not any(read(trial) for _, trials in found for trial in trials):
        return None
    curves = [(name_arm(arm, trials), _mean_curve(trials, read)) for arm, trials in found]
    every = [point.mean for _, points in curves for _, point in points]
    levels = pick_levels(every, find_start(found, read), references)
    if len(curves) <= MOST_BANDS:
        figure = new_figure(9, 4.6)
        axes = figure.subplots()
        for (name, points), colour, marker in zip(curves, COLOURS, MARKERS, strict=False):
            _draw_curve(axes, points, colour, marker, name)
        draw_levels(axes, levels)
        _finish_curves(axes, title, y)
        name_lines(axes)
    else:
        figure = _draw_panels(curves, title, levels, y)
    counts = [points[0][1].count for _, points in curves if points]
    write_caption(figure, describe_interval("Band", counts) + say_numbers(found))
    return figure


def _mean_curve(trials: Sequence[Result], read: ReadCurve) -> list[_Point]:
    """The mean over seeds, where no seed is missing: a mean over fewer seeds would jump."""
    at: dict[float, list[float]] = {}
    for trial in trials:
        for games, wins in read(trial):
            at.setdefault(games, []).append(100 * wins)
    full = max(map(len, at.values()), default=0)
    means = [(g, Mean.of(at[g])) for g in sorted(at) if len(at[g]) == full]
    return [(games, mean) for games, mean in means if mean is not None]


def _draw_curve(axes: Axes, points: Sequence[_Point], colour: str, marker: str, name: str) -> None:
    games, means = [g for g, _ in points], [m for _, m in points]
    style = {"color": colour, "marker": marker, "ms": 3.5, "lw": 1.6, "label": wrap_name(name)}
    axes.plot(games, [m.mean for m in means], **style)
    if all(m.half is not None for m in means):
        low = [max(m.mean - (m.half or 0.0), 0.0) for m in means]
        high = [min(m.mean + (m.half or 0.0), 100.0) for m in means]
        axes.fill_between(games, low, high, color=colour, alpha=0.15, lw=0)


def _draw_panels(
    curves: Sequence[tuple[str, list[_Point]]], title: str, levels: References, y: str
) -> Figure:
    """A panel for each arm. The first arm is a grey line in the others."""
    figure, panels = new_panels(len(curves))
    first_name, first = curves[0]
    for axes, (name, points) in zip(panels, curves, strict=True):
        if points is not first:
            line = {
                "color": GREY,
                "lw": 1.2,
                "ls": "--",
                "label": wrap_name(f"mean of {first_name}"),
            }
            axes.plot([g for g, _ in first], [m.mean for _, m in first], **line)
        _draw_curve(axes, points, BLUE, "o", "mean of the panel's arm")
        draw_levels(axes, levels)
        _finish_curves(axes, "", y)
        finish_panel(axes, name)
    name_panels(figure, title, *panels[1].get_legend_handles_labels())
    return figure


def find_start(found: Arms, read: ReadCurve = read_curve) -> float | None:
    """The start's mean of a curve in percent; None unless all arms began with the same model."""
    start: dict[Any, float] = {}
    for _, trials in found:
        for trial in trials:
            for games, wins in read(trial)[:1]:
                if games or start.setdefault(trial.params.get("seed"), wins) != wins:
                    return None
    return 100 * sum(start.values()) / len(start) if start else None


def pick_levels(
    values: Sequence[float], start: float | None, references: References
) -> list[tuple[str, float]]:
    """The start, and what is no farther from the values than they are from each other.

    values: all wins in a picture, in percent. A far line would press them together.
    """
    begin = [("start", start)] if start is not None else []
    shown = [*values, *(wins for _, wins in begin)]
    if not shown:
        return []
    low, high = min(shown), max(shown)
    near = [(name, wins) for name, wins in references if 2 * low - high <= wins <= 2 * high - low]
    return [*begin, *near]


def draw_levels(axes: Axes, levels: References) -> None:
    for (name, wins), dashes in zip(levels, (":", "-.", (0, (6, 2))), strict=False):
        label = wrap_name(f"{name}, {wins:.1f} %")
        axes.axhline(wins, color=GREY, lw=1.2, ls=dashes, label=label)


def _finish_curves(axes: Axes, title: str, y: str) -> None:
    label_axes(axes, title, x="training games", y=y)
    axes.set_xlim(left=0)
    count_on_x(axes)


def describe_interval(what: str, counts: Sequence[int]) -> str:
    """One line: what a band or a bar is, and over how many seeds. counts: of each arm."""
    low, high = min(counts, default=0), max(counts, default=0)
    if high < 2:
        return "One seed for each arm, so there is no interval."
    many = str(high) if low == high else f"{low} to {high}"
    return f"{what}: 95 % interval of the mean over seeds (Student's t), n = {many} seeds."


def name_arm(arm: dict[str, Any], trials: Sequence[Result]) -> str:
    """An arm's parameters, or its trial's number where they are long and it has one trial."""
    name = format_params(arm)
    return f"trial {trials[0].number}" if len(name) > _WIDE and len(trials) == 1 else name


def say_numbers(found: Arms) -> str:
    """What a picture with numbers of trials adds to its caption."""
    numbered = any(name_arm(*entry) != format_params(entry[0]) for entry in found)
    return " Trials have their numbers in results.csv." if numbered else ""


def wrap_name(name: str) -> str:
    """An arm's name in lines that fit beside a picture."""
    return textwrap.fill(name, _WIDE, break_long_words=False, break_on_hyphens=False)
