"""The kinds of pictures on a page: curves over steps, bars side by side, and dots with intervals.

Each picture has its numbers in a table too, for people who cannot see it and for those who want to
copy them.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from wordle_rl.reports.results import Estimate
from wordle_rl.reports.svg import GRID, INK, MUTED, PAPER, SERIES, Styles, page_style, to_svg
from wordle_rl.runs.figures import new_figure, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = len(SERIES)  # of one picture whose colours can be told apart
_WIDTH, _HEIGHT, _LEGEND = 4.5, 2.8, 0.2  # inches: of a picture, of a line of its legend
_SMALL = 9.5  # points: at 400 pixels a picture is about as wide as it was drawn
_MARKERS = ("o", "s", "^", "D", "v")
_DASHES: tuple[Any, ...] = ((0, (6, 2)), (0, (1, 2)), (0, (6, 2, 1, 2)), (0, (3, 1)), "-")
_MOST_POINTS = 250  # of a line
_MOST_ROWS = 40  # of the table of numbers
_TITLE, _LABEL = 44, 30  # characters of a line of text


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve over training steps. low, high: its band."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int = 0  # of SERIES
    dots: bool = False  # mark each point

    def thinned(self, most: int) -> list[int]:
        """Places of at most so many points, evenly spread, the last included."""
        count = len(self.steps)
        if count <= most:
            return list(range(count))
        return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


@dataclass(frozen=True, kw_only=True)
class Curves:
    """What a picture of curves shows."""

    title: str  # in words
    note: str  # what is counted, of how many, and what a band is
    unit: str
    lines: Sequence[Line]
    levels: Sequence[tuple[str, float]] = ()  # a label and a value, drawn as a level line
    points: Sequence[tuple[str, int, Estimate]] = ()  # label, step, value with its interval
    percent: bool = False  # values are shares, shown in per cent
    axis: str = "training step"


@dataclass(frozen=True, kw_only=True)
class Bars:
    """What a picture of bars shows: some series over the same labels."""

    title: str
    note: str
    unit: str
    labels: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    axis: str = ""
    percent: bool = False
    flat: bool = False  # bars from left to right, one series


@dataclass(frozen=True, kw_only=True)
class Dots:
    """What a picture of dots with intervals shows, one in each row, the first row on top."""

    title: str
    note: str
    unit: str
    rows: Sequence[tuple[str, Estimate]]
    strong: int = 0  # how many of the first rows are drawn in colour
    percent: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A picture on a page, with its numbers."""

    title: str
    note: str
    svg: Markup
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Charts:
    """Draws the pictures of one page."""

    styles: Styles = field(default_factory=Styles)
    _numbers: Any = field(default_factory=itertools.count)

    def curves(self, what: Curves) -> Chart | None:
        """None without a curve of two points and without other points."""
        if not any(len(line.steps) > 1 for line in what.lines) and len(what.points) < 2:
            return None
        with page_style():
            figure = new_figure(_WIDTH, _HEIGHT)
            axes = figure.subplots()
            _draw_curves(axes, what)
            axes.set_xlabel(what.axis)
            axes.locator_params(axis="x", integer=True, nbins=7)
            axes.grid(alpha=1.0, lw=0.6)
            return self._finish(figure, axes, what, _numbers_of_curves(what))

    def bars(self, what: Bars) -> Chart | None:
        """None without any value."""
        if not any(value for _, values in what.series for value in values):
            return None
        with page_style():
            rows = len(what.labels) if what.flat else 0
            figure = new_figure(_WIDTH, max(_HEIGHT, 1.0 + 0.24 * rows))
            axes = figure.subplots()
            _draw_flat_bars(axes, what) if what.flat else _draw_bars(axes, what)
            return self._finish(figure, axes, what, _numbers_of_bars(what))

    def dots(self, what: Dots) -> Chart | None:
        """None without rows."""
        if not what.rows:
            return None
        with page_style():
            figure = new_figure(_WIDTH, 1.1 + 0.34 * len(what.rows))
            axes = figure.subplots()
            _draw_dots(axes, what)
            columns = ("player", what.unit, "from", "to")
            rows = [[label, *_cells(value, what.percent)] for label, value in what.rows]
            return self._finish(figure, axes, what, (columns, rows))

    def _finish(
        self, figure: Figure, axes: Axes, what: Curves | Bars | Dots, numbers: tuple[Any, Any]
    ) -> Chart:
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            wide = max(map(len, labels)) > 26
            rows = len(labels) if wide else (len(labels) + 1) // 2
            figure.set_figheight(figure.get_figheight() + _LEGEND * rows)
            figure.legend(
                handles, [textwrap.shorten(label, 60) for label in labels],
                loc="outside lower center", ncols=1 if wide else 2, frameon=False,
                fontsize=_SMALL, labelcolor=INK,
            )  # fmt: skip
        key = f"chart{next(self._numbers)}"
        svg = to_svg(figure, self.styles, key=key, title=what.title, description=what.note)
        columns, rows = numbers
        return Chart(title=what.title, note=what.note, svg=svg, columns=columns, rows=rows)


def _draw_curves(axes: Axes, what: Curves) -> None:
    scale = 100.0 if what.percent else 1.0
    for i, (label, value) in enumerate(what.levels):
        dashes = _DASHES[i % len(_DASHES)]
        axes.axhline(scale * value, color=MUTED, lw=1.1, ls=dashes, label=plain_text(label))
    for line in what.lines:
        places = line.thinned(_MOST_POINTS)
        colour = SERIES[line.colour % len(SERIES)]
        steps = np.array(line.steps, float)[places]
        if len(line.low) == len(line.steps) == len(line.high):
            low, high = (scale * np.array(e, float)[places] for e in (line.low, line.high))
            axes.fill_between(steps, low, high, color=colour, alpha=0.18, lw=0)
        style = {"marker": _MARKERS[line.colour % len(_MARKERS)], "ms": 3.5} if line.dots else {}
        axes.plot(
            steps, scale * np.array(line.values, float)[places], color=colour, lw=1.6,
            label=plain_text(line.label), **style,
        )  # fmt: skip
    for i, (_, step, value) in enumerate(what.points):
        middle = scale * value.value
        ends = [middle if end is None else scale * end for end in (value.low, value.high)]
        error = np.maximum([[middle - ends[0]], [ends[1] - middle]], 0.0)
        axes.errorbar(
            [step], [middle], error, color=INK, fmt="D", ms=4.5, lw=1.3, capsize=3,
            label="reports on test secrets" if not i else None, mfc=PAPER,
        )  # fmt: skip
    axes.set_ylabel(what.unit)
    if what.percent:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low - 3, -1), min(high + 3, 101))


def _draw_bars(axes: Axes, what: Bars) -> None:
    scale = 100.0 if what.percent else 1.0
    width = 0.8 / max(len(what.series), 1)
    places = np.arange(len(what.labels))
    for i, (name, values) in enumerate(what.series):
        heights = [scale * (value or 0.0) for value in values]
        offset = (i - (len(what.series) - 1) / 2) * width
        axes.bar(
            places + offset, heights, width * 0.92, color=SERIES[i % len(SERIES)],
            label=plain_text(name), edgecolor=INK, lw=0.5,
        )  # fmt: skip
    axes.set_xticks(places, [plain_text(label) for label in what.labels])
    axes.set_xlabel(what.axis)
    axes.set_ylabel(what.unit)
    axes.grid(axis="y", color=GRID, lw=0.6)
    axes.set_axisbelow(True)


def _draw_flat_bars(axes: Axes, what: Bars) -> None:
    scale = 100.0 if what.percent else 1.0
    ((_, values),) = what.series
    widths = [scale * (value or 0.0) for value in values]
    places = np.arange(len(widths))
    axes.barh(places, widths, 0.7, color=SERIES[0], edgecolor=INK, lw=0.5)
    axes.set_yticks(places, [_shortened(label) for label in what.labels])
    axes.invert_yaxis()
    axes.set_xlabel(what.unit)
    axes.grid(axis="x", color=GRID, lw=0.6)
    axes.set_axisbelow(True)


def _draw_dots(axes: Axes, what: Dots) -> None:
    scale = 100.0 if what.percent else 1.0
    for i, (_, value) in enumerate(what.rows):
        middle = scale * value.value
        ends = [middle if end is None else scale * end for end in (value.low, value.high)]
        error = np.maximum([[middle - ends[0]], [ends[1] - middle]], 0.0)
        colour = SERIES[i % len(SERIES)] if i < what.strong else MUTED
        axes.errorbar(
            [middle], [i], xerr=error, fmt=_MARKERS[i % len(_MARKERS)], color=colour, ms=6, lw=1.6,
            capsize=3,
        )  # fmt: skip
        axes.annotate(
            f"{middle:.1f}" if what.percent else f"{middle:.2f}", (middle, i), xytext=(0, 6),
            textcoords="offset points", ha="center", fontsize=_SMALL, color=INK,
        )  # fmt: skip
    axes.set_yticks(range(len(what.rows)), [_shortened(label) for label, _ in what.rows])
    axes.set_ylim(len(what.rows) - 0.4, -0.7)
    axes.margins(x=0.1)  # so that a number does not cross the axis
    axes.set_xlabel(what.unit)
    axes.grid(axis="x", color=GRID, lw=0.6)


def _shortened(label: str) -> str:
    """A label in at most two lines."""
    lines = textwrap.wrap(label, _LABEL) or [""]
    if len(lines) > 2:
        lines = [lines[0], textwrap.shorten(" ".join(lines[1:]), _LABEL, placeholder="…")]
    return plain_text("\n".join(lines))


def _cells(value: Estimate, percent: bool) -> list[str]:
    return [_text(part, percent) for part in (value.value, value.low, value.high)]


def _text(value: float | None, percent: bool) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}" if percent else f"{value:.4g}"


def _numbers_of_curves(what: Curves) -> tuple[list[str], list[list[str]]]:
    """A row for each point of the first curve with dots, or else of the first curve."""
    rows: list[list[str]] = []
    if what.lines:
        anchor = next((line for line in what.lines if line.dots), what.lines[0])
        at = [dict(zip(line.steps, line.values, strict=True)) for line in what.lines]
        for place in anchor.thinned(_MOST_ROWS):
            step = anchor.steps[place]
            rows.append([f"{step:g}", *(_text(found.get(step), what.percent) for found in at)])
    rows += [
        [f"{step:g}: {label}", *_point_cells(value, what)] for label, step, value in what.points
    ]
    rows += [[label, *_point_cells(Estimate(value=value), what)] for label, value in what.levels]
    return [what.axis, *([line.label for line in what.lines] or [what.unit])], rows


def _point_cells(value: Estimate, what: Curves) -> list[str]:
    """The cells of a single point, in a row as wide as the others."""
    text, low, high = _cells(value, what.percent)
    if value.low is not None:
        text += f" ({low} to {high})"
    return [text, *[""] * (max(len(what.lines), 1) - 1)]


def _numbers_of_bars(what: Bars) -> tuple[list[str], list[list[str]]]:
    columns = [what.axis or "part", *(name for name, _ in what.series)]
    return columns, [
        [label, *(_text(values[i], what.percent) for _, values in what.series)]
        for i, label in enumerate(what.labels)
    ]
