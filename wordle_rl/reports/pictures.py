"""The pictures of a page, drawn on axes: wins and guesses over steps, players, boards.

A page has them as SVG whose text and lines take the page's own colour, so they suit light and dark.
As PNG they also carry their title and note.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from wordle_rl.reports.run import Board, Estimate, Result, Run
from wordle_rl.reports.solvers import OPTIMUM, OPTIMUM_TITLE, TITLES, solvers_of
from wordle_rl.runs.figures import BLUE, COLOURS, GREEN, INK, MARKERS, RED, new_figure
from wordle_rl.runs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#7b7b7b"  # can be seen on white and on black
_DASHES: tuple[Any, ...] = ((0, (6, 2)), (0, (1, 2)), (0, (6, 2, 1, 2)), (0, (3, 1)))
_SMALL = 9.5  # points: at 400 pixels a picture is about as wide as it was drawn
_TILES = (("#6aaa64", "✓"), ("#c9b458", "–"), ("#5f6366", ""))  # of marks 0, 1 and 2
_STYLE: Any = {
    "text.parse_math": False,  # a name may hold dollars
    "svg.fonttype": "none",  # text stays text
    "font.family": ["sans-serif"], "font.sans-serif": ["DejaVu Sans"], "font.size": 10.0,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.color": _GREY, "grid.alpha": 0.3, "grid.linewidth": 0.6,
    "path.simplify_threshold": 0.5,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color",
                     "ytick.color"), INK),
}  # fmt: skip


class Picture(NamedTuple):
    """What is drawn, and how it is called."""

    name: str  # of its PNG
    title: str
    note: str  # what is counted, of how many, and what a band is
    draw: Callable[[Axes], None]
    size: tuple[float, float] = (4.5, 2.8)  # inches


def run_pictures(run: Run) -> list[Picture]:
    """Wins, guesses and totals of one run over its steps; none without metrics."""
    if not len(run.series("train/wins")) and len(run.validations) < 2:
        return []
    levels = _level_players(run)
    found = [
        Picture("wins", "Games won", f"{_count_games(run)}{_BAND} Diamonds are the reports on test "
                f"secrets, played greedily.{_LEVELS if levels else ''}",
                partial(draw_wins, run=run, levels=levels)),
    ]  # fmt: skip
    if len(run.validations) > 1:
        note = f"A lost game counts as {run.max_turns + 1}. {_count_games(run)}{_BAND}"
        draw = partial(draw_guesses, run=run, levels=levels)
        found.append(Picture("guesses", "Mean number of guesses", note, draw))
    if len(run.series("train/wins")):
        draw = partial(draw_totals, run=run)
        found.append(Picture("totals", "Training games so far", "Played and won.", draw))
    return found


_BAND = "The band is the 95 % interval over secrets."
_LEVELS = " Lines in grey are scripted players on all answers."


def compared_pictures(runs: Sequence[Run]) -> list[Picture]:
    """Validation wins and guesses of several runs, at most five of them in a picture."""
    parts = [runs[i : i + len(COLOURS)] for i in range(0, len(runs), len(COLOURS))]
    return [
        Picture(
            f"{what}{number}" if len(parts) > 1 else what,
            f"{title}, part {number} of {len(parts)}" if len(parts) > 1 else title,
            f"Validation games of each run. {_BAND}", partial(_draw_compared, runs=part, what=what),
        )
        for what, title in (("wins", "Games won"), ("guesses", "Mean number of guesses"))
        for number, part in enumerate(parts, 1)
        if any(len(run.validations) > 1 for run in part)
    ]  # fmt: skip


def player_pictures(
    results: Sequence[Result], what: str, *, strong: int, optimum: bool
) -> list[Picture]:
    """Wins and guesses of players with intervals.

    what: the secrets. strong: how many of the first ones are models. optimum: whether the
    published one applies.
    """
    ends = "The ends of a line are the 95 % interval over secrets."
    wins = [(result.label, result.wins) for result in results]
    guesses = [(result.label, result.guesses) for result in results]
    guesses += [(OPTIMUM_TITLE, OPTIMUM)] * optimum
    return [
        Picture("players", "Games won by each player", f"Share of the games on {what}. {ends}",
                partial(draw_dots, rows=wins, strong=strong, percent=True),
                (4.5, 1.0 + 0.34 * len(wins))),
        Picture("player_guesses", "Mean guesses of each player",
                f"A lost game counts as one more than the turns. Games on {what}. {ends}",
                partial(draw_dots, rows=guesses, strong=strong, percent=False),
                (4.5, 1.0 + 0.34 * len(guesses))),
    ]  # fmt: skip


def board_picture(pairs: Sequence[tuple[Board, Board]], labels: tuple[str, str]) -> Picture:
    """Two games on each of some secrets, one above the other. labels: of the two players."""
    tall = max(len(board.rows) for pair in pairs for board in pair)
    return Picture(
        "boards", f"The same secrets: {labels[0]}, and below {labels[1]}",
        "By hash order alone: half are secrets whose result changed, if there are as many. "
        "✓ in its place, – elsewhere in the word.",
        partial(draw_boards, pairs=pairs, tall=tall), (2.1 * len(pairs), 1.0 + 0.75 * tall),
    )  # fmt: skip


def draw_wins(axes: Axes, run: Run, levels: Sequence[Result]) -> None:
    """Wins in training, validation and reports over steps, in per cent."""
    _draw_levels(axes, [(level.label, 100 * level.wins.value) for level in levels])
    played, won = run.series("train/games"), run.series("train/wins")
    window = max(1, len(won) // 20)
    sums: list[Any] = [one.rolling(window, min_periods=1).sum() for one in (won, played)]
    rate = sums[0] / sums[1]
    label = "training" if window == 1 else f"training, mean of {window} steps"
    if len(rate.dropna()):
        axes.plot(rate.index, 100 * rate, color=BLUE, lw=1.6, label=label)
    _draw_validations(axes, run, "wins", 100, RED, MARKERS[0], "validation")
    _draw_watched(axes, run, "win_rate", 100, "points")
    _draw_reports(axes, [(one.step, one.wins) for one in run.reports], 100)
    _finish(axes, "games won, %")
    low, high = axes.get_ylim()
    axes.set_ylim(max(low - 3, -1), min(high + 3, 101))


def draw_guesses(axes: Axes, run: Run, levels: Sequence[Result]) -> None:
    """Mean guesses in validation and reports over steps, a lost game as one more than the turns."""
    means = [(level.label, level.guesses.value) for level in levels]
    _draw_levels(axes, [*means, ("optimum (published)", OPTIMUM.value)] if levels else [])
    _draw_validations(axes, run, "guesses", 1, RED, MARKERS[0], "validation")
    _draw_watched(axes, run, "mean_guesses_with_losses", 1, "guesses")
    _draw_reports(axes, [(one.step, one.guesses) for one in run.reports], 1)
    _finish(axes, "guesses")


def draw_totals(axes: Axes, run: Run) -> None:
    """Training games played and won so far."""
    for label, key, style in (("played", "games", "--"), ("won", "wins", "-")):
        total = run.series(f"train/{key}").cumsum()
        axes.plot(total.index, total, style, color=BLUE, lw=1.6, label=label)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    _finish(axes, "games")


def draw_dots(
    axes: Axes, rows: Sequence[tuple[str, Estimate]], *, strong: int, percent: bool
) -> None:
    """A dot with its interval for each row, the first on top and the first `strong` in colour."""
    scale, form = (100, ".1f") if percent else (1, ".2f")
    for i, (_, value) in enumerate(rows):
        colour = COLOURS[i % len(COLOURS)] if i < strong else _GREY
        axes.errorbar(
            [scale * value.value], [i], xerr=_errors(value, scale), color=colour, ms=6, lw=1.6,
            capsize=3, fmt=MARKERS[i % len(MARKERS)],
        )  # fmt: skip
        axes.annotate(
            f"{scale * value.value:{form}}", (scale * value.value, i), xytext=(0, 6),
            textcoords="offset points", ha="center", fontsize=_SMALL,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [textwrap.fill(label[:60], 30) for label, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.7)
    axes.margins(x=0.1)  # so that a number does not cross the axis
    axes.set_xlabel("games won, %" if percent else "guesses")
    axes.grid(axis="x")


def draw_boards(axes: Axes, pairs: Sequence[tuple[Board, Board]], tall: int) -> None:
    """A column for each secret, with its first game above the second."""
    from matplotlib.patches import Rectangle

    for column, pair in enumerate(pairs):
        for line, board in enumerate(pair):
            left, top = 6.6 * column, line * (tall + 1.3)
            ending = f"won in {len(board.rows)}" if board.won else "lost"
            axes.text(left, top - 0.25, f"{board.secret.upper()[:5]}: {ending}", fontsize=_SMALL)
            for row, (word, marks, note, _) in enumerate(board.rows):
                for i in range(5):
                    colour, sign = _TILES[int(marks[i])] if marks else ("none", "")
                    place, letter = (left + i, top + row), word[i : i + 1].upper()
                    axes.add_patch(Rectangle(place, 0.92, 0.92, facecolor=colour, edgecolor=_GREY))
                    dark = "#ffffff" if marks and marks[i] == "2" else INK
                    style: Any = {"ha": "center", "va": "center", "color": dark}
                    axes.text(left + i + 0.46, top + row + 0.48, letter, weight="bold", **style)
                    axes.text(left + i + 0.8, top + row + 0.76, sign, fontsize=6.5, **style)
                if note and not word:
                    axes.text(left + 2.5, top + row + 0.48, note, ha="center", va="center")
    axes.set(xlim=(-0.2, 6.6 * len(pairs) - 1.4), ylim=(2 * (tall + 1.3) - 1, -1))
    axes.set_aspect("equal")
    axes.axis("off")


def _draw_compared(axes: Axes, runs: Sequence[Run], what: str) -> None:
    scale = 100 if what == "wins" else 1
    for run, colour, marker in zip(runs, COLOURS, MARKERS, strict=False):
        _draw_validations(axes, run, what, scale, colour, marker, run.name)
    _finish(axes, "games won, %" if what == "wins" else "guesses")


def _draw_validations(
    axes: Axes, run: Run, what: str, scale: float, colour: str, marker: str, label: str
) -> None:
    found = scale * run.validations.filter(like=what).astype(float)
    if len(found):
        band: Any = {"color": colour, "alpha": 0.18, "lw": 0}
        axes.fill_between(found.index, found[f"{what}_low"], found[f"{what}_high"], **band)
        axes.plot(found.index, found[what], color=colour, marker=marker, ms=3.5, lw=1.6,
                  label=label)  # fmt: skip


def _draw_watched(axes: Axes, run: Run, metric: str, scale: float, unit: str) -> None:
    """Greedy games on training and test secrets, and the gap between them (trainer.watch_every)."""
    train, test = (scale * run.series(f"watch/{which}/{metric}") for which in ("train", "test"))
    for which, values, colour in (("training", train, BLUE), ("test", test, GREEN)):
        if len(values):
            axes.plot(values.index, values, color=colour, marker="s", ms=3.5, lw=1.2, ls=":",
                      label=f"{which} secrets, greedy")  # fmt: skip
    gap = (train - test).dropna()
    if len(gap):
        label = f"gap, at the end {gap.iloc[-1]:+.3g} {unit}"
        axes.fill_between(gap.index, train[gap.index], test[gap.index], color=_GREY, alpha=0.2,
                          lw=0, label=label)  # fmt: skip


def _draw_levels(axes: Axes, levels: Sequence[tuple[str, float]]) -> None:
    for (label, value), dashes in zip(levels, _DASHES, strict=False):
        axes.axhline(value, color=_GREY, lw=1.2, ls=dashes, label=label)


def _draw_reports(axes: Axes, reports: Sequence[tuple[int, Estimate]], scale: float) -> None:
    for i, (step, value) in enumerate(reports):
        axes.errorbar(
            [step], [scale * value.value], _errors(value, scale), color=INK, fmt="D", ms=4.5,
            lw=1.3, capsize=3, label=None if i else "reports on test secrets",
        )  # fmt: skip


def _errors(value: Estimate, scale: float) -> np.ndarray:
    middle, *ends = value
    low, high = (middle if end is None else end for end in ends)
    return scale * np.maximum([[middle - low], [high - middle]], 0.0)


def _finish(axes: Axes, unit: str) -> None:
    axes.set(xlabel="training step", ylabel=unit)
    axes.locator_params(axis="x", integer=True, nbins=7)
    axes.grid()


def _level_players(run: Run) -> list[Result]:
    """At most three scripted players on all answers: the teachers first."""
    solvers = solvers_of(run)
    names = [*(name for name in TITLES if name in run.teachers),
             "random_consistent_allowed", "random_consistent"]  # fmt: skip
    return [solvers[name] for name in dict.fromkeys(names) if name in solvers][:3]


def _count_games(run: Run) -> str:
    """How many games a point is about."""
    games = run.series("train/games")
    parts = [f"{games.iloc[-1]:,.0f} training games in a step"] if len(games) else []
    parts += [f"{run.validation_games:,} validation games"] if run.validation_games else []
    return f"{' and '.join(parts)}. " if parts else ""


@contextmanager
def _figure(picture: Picture, **settings: Any) -> Iterator[Any]:
    from matplotlib import rc_context

    style: Any = {**_STYLE, **settings}
    with rc_context(style):
        figure = new_figure(*picture.size)
        axes = figure.subplots()
        picture.draw(axes)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            columns = 1 if max(map(len, labels)) > 26 else 2
            figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // columns))
            figure.legend(handles, [textwrap.shorten(label, 60) for label in labels],
                          loc="outside lower center", ncols=columns, frameon=False,
                          fontsize=_SMALL)  # fmt: skip
        yield figure


def to_svg(picture: Picture) -> Markup:
    """The picture as an element of a page, in whose colour it has its text."""
    file = io.StringIO()
    with _figure(picture, **{"svg.hashsalt": picture.name}) as figure:
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    svg = file.getvalue()[file.getvalue().index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names that several pictures would share
    # matplotlib escapes all texts, those from a run included.
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(picture.title)}" ', 1))


def write_png(picture: Picture, folder: Path) -> Path:
    """Write the picture with its title and its note. Returns its path."""
    file = io.BytesIO()
    with _figure(picture) as figure:
        lines = textwrap.wrap(picture.note, int(14 * figure.get_figwidth()))
        figure.set_figheight(figure.get_figheight() + 0.16 * len(lines))
        figure.suptitle("\n".join([picture.title, *lines]), fontsize=9)
        figure.savefig(file, format="png", dpi=300)
    write_bytes(folder / f"{picture.name}.png", file.getvalue())
    return folder / f"{picture.name}.png"
