"""The picture of a study: curves over training games, and a dot for each trial.

It has titles in words, units, and a line that says what its bars are and over how many seeds.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from scipy.stats import t

from wordle_rl.runs.figures import (
    BLUE,
    GREY,
    INK,
    count_on_x,
    label_axes,
    name_lines,
    new_figure,
    write_caption,
)
from wordle_rl.sweeps.results import SEARCH, WINS
from wordle_rl.sweeps.verdicts import Frame, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE = "curves.png"
MOST_CURVES = 10  # arms whose names can be read in one picture
_WIDE = 40  # characters of a name in a line
_Y = "validation games won (%)"


def draw_study(study: Study) -> Figure | None:
    """Draw curves and dots of the best arms; None before a trial is complete."""
    trials = study.select(SEARCH)
    best = trials.groupby("arm", sort=False)[WINS].max().dropna()
    if best.empty:
        return None
    if len(best) > MOST_CURVES:
        best = best.sort_values(ascending=False, kind="stable")[:MOST_CURVES]
    trials = trials[trials.arm.isin(best.index)]
    start, seeds = find_start(trials), trials.groupby("arm").size()
    names = {arm: _name_arm(trials[trials.arm == arm]) for arm in best.index}
    figure = new_figure(9, 5.2 + 0.4 * len(names))
    upper, lower = figure.subplots(2, 1, height_ratios=(4, 1.2 + 0.4 * len(names)))
    _draw_curves(upper, study, trials, names)
    _draw_dots(lower, trials, names)
    if start is not None:
        level = 100 * float(start.mean())
        lower.axvline(level, color=GREY, lw=1.2, ls=":", label=f"start, {level:.1f} %")
        name_lines(lower)
    low, high = seeds.min(), seeds.max()
    many = high if low == high else f"{low} to {high}"
    note = f"Line: the mean over seeds. Bar: its 95 % interval (Student's t), n = {many}."
    if high == 1:
        note = "One seed for each arm, so there is no interval."
    if any(name.startswith("trial ") for name in names.values()):
        note += " Trials have their numbers in results.csv."
    write_caption(figure, f"Dot: a trial. {note}")
    return figure


def find_start(trials: Frame) -> Any:
    """The wins (0..1) of the common start at each seed; None if arms begin with other models."""
    begun = trials[[bool(curve) and curve[0][0] == 0 for curve in trials.curve]]
    wins = begun.curve.map(lambda curve: curve[0][1]).groupby(begun.seed)
    return wins.first() if len(begun) and (wins.nunique() == 1).all() else None


def _name_arm(own: Frame) -> str:
    """The arm, or its trial's number where its name is long and it has one trial."""
    name = own.arm.iloc[0]
    return f"trial {own.trial.iloc[0]}" if len(name) > _WIDE and len(own) == 1 else name


def _read_points(study: Study, trials: Frame) -> Frame:
    """A row (`arm`, `games`, `value` in percent) for each validation of each trial."""
    points = trials[["arm", "trial", "curve"]].explode("curve", ignore_index=True)
    points = points.assign(
        games=points.curve.str[0].astype(float), value=100 * points.curve.str[1].astype(float)
    )
    if study.measure.over_time and study.measure.of_games:
        games = study.games[study.games["round"] == SEARCH]
        shares = games.assign(value=100 * study.measure.of_games(games).astype(float))
        means = shares.groupby(["trial", "step"]).value.mean().reset_index()
        # A validation has the same place among the steps as among the numbers of games.
        means = means.assign(place=means.groupby("trial").cumcount()).drop(columns="step")
        points = points.assign(place=points.groupby("trial").cumcount()).drop(columns="value")
        points = points.merge(means, on=["trial", "place"])
    return points


def _draw_curves(axes: Axes, study: Study, trials: Frame, names: dict[str, str]) -> None:
    """A line for each arm."""
    points = _read_points(study, trials).groupby(["arm", "games"]).value
    for number, (arm, name) in enumerate(names.items()):
        means, seeds = points.mean()[arm], points.size()[arm]
        means = means[seeds == seeds.max()]  # where a seed is missing, the mean would jump
        axes.plot(means, marker="os^Dv<>pP*"[number], ms=4, label=textwrap.fill(name, _WIDE))
    title, y = "Validation games won over training games", _Y
    if study.measure.over_time:
        title, y = study.measure.title.capitalize(), "share (%)"
    label_axes(axes, title, x="training games", y=y)
    axes.set_xlim(left=0)
    count_on_x(axes)
    name_lines(axes)


def _draw_dots(axes: Axes, trials: Frame, names: dict[str, str]) -> None:
    """A dot for each trial, and a bar for each arm's mean."""
    for place, arm in enumerate(names):
        own = 100 * trials[trials.arm == arm][WINS].dropna()
        axes.plot(own, [place] * len(own), "o", color=BLUE, ms=5, alpha=0.6)
        half = own.sem() * t.ppf(0.975, len(own) - 1) if len(own) > 1 else 0.0
        axes.errorbar([own.mean()], [place], xerr=[half], fmt="|", color=INK, ms=14, capsize=4)
    label_axes(axes, "Validation games won by the best checkpoint of each trial", x=_Y)
    axes.set_yticks(range(len(names)), [textwrap.fill(name, _WIDE) for name in names.values()])
    axes.invert_yaxis()
