"""The pictures of a page, drawn on axes: wins and guesses over steps, and of players.

A page has them as SVG in the page's own colour.
"""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes

from wordle_rl.reports.run import GUESSES, OPTIMUM, OPTIMUM_TITLE, WINS, Estimate, Result, Run
from wordle_rl.runs.figures import COLOURS, GREEN, INK, MARKERS, ORANGE, PINK, new_figure

_GREY = "#7b7b7b"  # can be seen on white and on black
_DASHES: tuple[Any, ...] = ((0, (6, 2)), (0, (1, 2)), (0, (6, 2, 1, 2)), (0, (3, 1)))
_SMALL = 9.5  # points: at 400 pixels a picture is about as wide as it was drawn
_SCALES = {WINS: (100, "games won, %", ".1f"), GUESSES: (1, "guesses", ".2f")}
_BAND = "The band is the 95 % interval over secrets."
_STYLE: Any = {
    "text.parse_math": False,  # a name may hold dollars
    "svg.fonttype": "none",  # text stays text
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": _GREY,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "path.simplify_threshold": 0.5,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    ),
}


class Picture(NamedTuple):
    """What is drawn, and how it is called."""

    name: str  # different for each picture of a page
    title: str
    note: str  # what is counted, of how many, and what a band is
    draw: Callable[[Axes], None]
    size: tuple[float, float] = (4.5, 2.8)  # inches


def curve_pictures(runs: Sequence[Run], solvers: Sequence[Result]) -> list[Picture]:
    """Wins and guesses of runs over their steps. solvers: the first two are shown as lines."""
    single_run, pictures = runs[0] if len(runs) == 1 else None, []
    trained = single_run is not None and len(single_run.series("train/wins")) > 0
    levels = solvers[:2] if single_run else []
    note = f"{_count_games(single_run) if single_run else _name_validations(runs)}{_BAND}"
    if single_run and single_run.reports:
        note += " Diamonds are the reports at the start and the end."
    if levels:
        note += " Lines in grey are scripted players on all answers."
    for name, title, measure in (
        ("wins", "Games won", WINS),
        ("guesses", "Mean number of guesses", GUESSES),
    ):
        if any(len(run.validations) > 1 for run in runs) or (trained and measure == WINS):
            draw = partial(draw_curves, runs=runs, measure=measure, levels=levels)
            pictures.append(Picture(name, title, note, draw))
    return pictures


def player_pictures(
    results: Sequence[Result], what: str, *, strong: int, optimum: bool
) -> list[Picture]:
    """Wins and guesses of players with intervals. strong: how many of the first are models."""
    note = f"Games on {what}. The ends of a line are the 95 % interval over secrets."
    pictures = []
    for name, title, measure in (
        ("players", "Games won by each player", WINS),
        ("player_guesses", "Mean guesses of each player", GUESSES),
    ):
        rows = [(result.label, result.estimate(measure)) for result in results]
        if optimum and measure == GUESSES:
            rows.append((OPTIMUM_TITLE, OPTIMUM))
        draw = partial(draw_dots, rows=rows, strong=strong, measure=measure)
        rule = "" if measure == WINS else " A lost game counts as one more than the turns."
        pictures.append(Picture(name, title, note + rule, draw, (4.5, 1.0 + 0.34 * len(rows))))
    return pictures


def draw_curves(axes: Axes, runs: Sequence[Run], measure: str, levels: Sequence[Result]) -> None:
    """Validation over steps; of a single run also training, greedy games and reports."""
    scale, unit, _ = _SCALES[measure]
    lines = [(level.label, level.estimate(measure).value) for level in levels]
    if levels and measure == GUESSES:
        lines.append(("optimum (published)", OPTIMUM.value))
    for (label, value), dashes in zip(lines, _DASHES, strict=False):
        axes.axhline(scale * value, color=_GREY, lw=1.2, ls=dashes, label=label)
    if len(runs) == 1 and measure == WINS:
        _draw_training(axes, runs[0])
    for i, run in enumerate(runs):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        colour, label = (PINK, "validation") if len(runs) == 1 else (colour, run.name)
        label = ", ".join(filter(None, (label, run.validated_as)))
        ends = (measure, f"{measure}_low", f"{measure}_high")
        middle, low, high = (scale * run.validations[end].astype(float) for end in ends)
        if len(middle):
            axes.fill_between(middle.index, low, high, color=colour, alpha=0.18, lw=0)
            style: Any = {"marker": marker, "ls": "-" if i < len(COLOURS) else "--"}
            axes.plot(middle.index, middle, color=colour, ms=3.5, lw=1.6, label=label, **style)
    if len(runs) == 1:
        _draw_test(axes, runs[0], measure, scale)
    axes.set(xlabel="training step", ylabel=unit)
    axes.locator_params(axis="x", integer=True, nbins=7)
    axes.grid()
    if measure == WINS:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low - 3, -1), min(high + 3, 101))


def _draw_training(axes: Axes, run: Run) -> None:
    games, wins = run.series("train/games"), run.series("train/wins")
    window = max(1, len(wins) // 20)
    sums: list[Any] = [one.rolling(window, min_periods=1).sum() for one in (wins, games)]
    rate = 100 * sums[0] / sums[1]
    if len(rate.dropna()):
        label = ", ".join(filter(None, ("training", run.trained_as)))
        label = label if window == 1 else f"{label}, mean of {window} steps"
        axes.plot(rate.index, rate, color=GREEN, lw=1.6, label=label)


def _draw_test(axes: Axes, run: Run, measure: str, scale: float) -> None:
    """Greedy games on test secrets: the reports, and those of trainer.watch_every between them."""
    curve = scale * run.series(f"watch/test/{measure}")
    if len(curve):
        label = "test secrets, greedy"
        axes.plot(curve.index, curve, "s:", color=ORANGE, ms=3.5, lw=1.2, label=label)
    for report, colour in zip(reversed(run.reports), COLOURS, strict=False):  # as in draw_dots
        value = report.estimate(measure)
        axes.errorbar(
            [report.step],
            [scale * value.value],
            _errors(value, scale),
            color=colour,
            fmt="D",
            ms=4.5,
            lw=1.3,
            capsize=3,
            label=f"test secrets, {report.label}",
        )


def draw_dots(
    axes: Axes, rows: Sequence[tuple[str, Estimate]], *, strong: int, measure: str
) -> None:
    """A dot with its interval for each row, the first on top and the first `strong` in colour."""
    scale, unit, form = _SCALES[measure]
    for i, (_, value) in enumerate(rows):
        colour = COLOURS[i % len(COLOURS)] if i < strong else _GREY
        axes.errorbar(
            [scale * value.value],
            [i],
            xerr=_errors(value, scale),
            color=colour,
            ms=6,
            lw=1.6,
            capsize=3,
            fmt=MARKERS[i % len(MARKERS)],
        )
        axes.annotate(
            f"{scale * value.value:{form}}",
            (scale * value.value, i),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=_SMALL,
        )
    axes.set_yticks(range(len(rows)), [textwrap.fill(label[:60], 30) for label, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.7)
    axes.margins(x=0.1)  # so that a number does not cross the axis
    axes.set_xlabel(unit)
    axes.grid(axis="x")


def _errors(value: Estimate, scale: float) -> np.ndarray:
    middle, *ends = value
    low, high = (middle if end is None else end for end in ends)
    return scale * np.maximum([[middle - low], [high - middle]], 0.0)


def _name_validations(runs: Sequence[Run]) -> str:
    ways = dict.fromkeys(run.validated_as for run in runs if run.validated_as)
    return f"{', '.join(['Validation games of each run', *ways])}. "


def _count_games(run: Run) -> str:
    """How many games a point is about, and how their words were chosen."""
    games = run.series("train/games")
    parts = [f"{games.iloc[-1]:,.0f} training games in a step"] if len(games) else []
    parts += [f"{len(games):,} validation games" for games in [*run.validated.values()][-1:]]
    return f"{' and '.join(parts)}. " if parts else ""


def to_svg(picture: Picture) -> Markup:
    """The picture as an element of a page, in whose colour it has its text."""
    file = io.StringIO()
    style: Any = {**_STYLE, "svg.hashsalt": picture.name}
    with rc_context(style):
        figure = new_figure(*picture.size)
        axes = figure.subplots()
        picture.draw(axes)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            columns = 1 if max(map(len, labels)) > 26 else 2
            figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // columns))
            figure.legend(
                handles,
                [textwrap.shorten(label, 60) for label in labels],
                loc="outside lower center",
                ncols=columns,
                frameon=False,
                fontsize=_SMALL,
            )
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    svg = file.getvalue()[file.getvalue().index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names that several pictures would share
    # matplotlib escapes all texts, those from a run included.
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(picture.title)}" ', 1))
