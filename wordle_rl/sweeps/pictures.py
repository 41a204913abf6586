"""The picture of a study: curves over training games, and a dot for each trial.

It has titles in words, units, and a line that says what its bands are and over how many seeds.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scipy.special import stdtrit

from wordle_rl.runs.config import compose_from_conf
from wordle_rl.runs.figures import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    MARKERS,
    MOST_BANDS,
    count_on_x,
    label_axes,
    name_lines,
    new_figure,
    write_caption,
)
from wordle_rl.runs.paths import PACKAGE
from wordle_rl.sweeps.analysis import WINS, Frame, Study, find_start
from wordle_rl.sweeps.records import SEARCH
from wordle_rl.sweeps.space import format_params

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE = "curves.png"
MOST_CURVES = 10  # arms whose names can be read in one picture
_COLUMNS, _WIDE = 3, 40  # panels beside each other; characters of a name in a line
_Y = "validation games won (%)"
_OF_START = re.compile(r"(\d+: *)?[+~]*(experiment|model|init_from|rules|words)")
TEACHERS = {  # by the name in algorithm.player: wins on all original answers, in percent
    "random_consistent": ("teacher: any answer that fits", 98.2),
    "random_consistent_allowed": ("teacher: any word that fits", 89.7),
    "entropy": ("teacher: greedy entropy", 100.0),
    "entropy_allowed": ("teacher: greedy entropy, all words", 100.0),
}


def draw_study(study: Study) -> Figure | None:
    """Draw curves and dots of the best arms; None before a trial has a validation."""
    trials = study.select(SEARCH)
    trials = trials[trials.curve.str.len() > 0]
    if trials.empty:
        return None
    best = trials.groupby("key", sort=False)[WINS].max().fillna(0.0)
    if len(best) > MOST_CURVES:
        best = best.sort_values(ascending=False, kind="stable")[:MOST_CURVES]
    trials = trials[trials.key.isin(best.index)]
    points, over_time = _read_points(study, trials), study.measure.over_time
    names = {key: _name_arm(trials[trials.key == key]) for key in best.index}
    start, seeds = find_start(trials), trials.groupby("key").size()
    levels = [] if start is None else [("start", 100 * float(start.mean()))]
    near = [*(100 * trials[WINS].dropna()), *([] if over_time else points.value)]
    for name, wins in find_teacher(study.identity):  # a far line would press the others together
        shown = [*near, *(level for _, level in levels)]
        low, high = min(shown), max(shown)
        levels += [(name, wins)] if 2 * low - high <= wins <= 2 * high - low else []

    rows = 1 if len(best) <= MOST_BANDS else -(-len(best) // _COLUMNS)
    figure = new_figure(9, 8.4 if rows == 1 else 5.4 + 2.1 * rows)
    heights = (1, 1) if rows == 1 else (2.1 * rows, 4.6)
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    upper, lower = parts
    if over_time:
        _draw_curves(upper, points, names, [], study.measure.title.capitalize(), "share (%)")
    else:
        title = "Validation games won over training games"
        _draw_curves(upper, points, names, levels, title, _Y)
    axes = lower.subplots()
    _draw_dots(axes, trials, names, levels)
    low, high = seeds.min(), seeds.max()
    note = "One seed for each arm, so there is no interval."
    if high > 1:
        many = high if low == high else f"{low} to {high}"
        note = f"Bands and bars: 95 % interval of the mean over seeds (Student's t), n = {many}."
    if any(name.startswith("trial ") for name in names.values()):
        note += " Trials have their numbers in results.csv."
    write_caption(lower, f"Dot: a trial. {note}")  # type: ignore[arg-type]
    return figure


def _name_arm(own: Frame) -> str:
    """An arm's parameters, or its trial's number where they are long and it has one trial."""
    name = format_params(own.arm.iloc[0])
    return f"trial {own.trial.iloc[0]}" if len(name) > _WIDE and len(own) == 1 else name


def _read_points(study: Study, trials: Frame) -> Frame:
    """A row (`key`, `games`, `value` in percent) for each validation of each trial."""
    points = trials[["key", "trial", "curve"]].explode("curve", ignore_index=True)
    points = points.assign(
        games=points.curve.str[0].astype(float), value=100 * points.curve.str[1].astype(float)
    )
    if study.measure.over_time and study.measure.of_games:
        games = study.games[study.games["round"] == SEARCH]
        shares = games.assign(value=100 * study.measure.of_games(games).astype(float))
        means = shares.groupby(["trial", "step"]).value.mean().reset_index()
        # A validation has the same place among the steps as among the numbers of games.
        order = means.groupby("trial").cumcount()
        place = points.groupby("trial").cumcount()
        means = means.assign(place=order)[["trial", "place", "value"]]
        points = points.drop(columns="value").assign(place=place)
        points = points.merge(means, on=["trial", "place"])
    return points


def _summarise(values: Any) -> Frame:
    """Mean and half of its 95 % interval (NaN for one seed) of each group of values."""
    found = values.agg(["mean", "std", "count"])
    quantile = stdtrit(found["count"] - 1, 0.975)
    return found.assign(half=quantile * found["std"] / found["count"] ** 0.5)


def _draw_curves(
    figure: Any, points: Frame, names: dict[str, str], levels: list[tuple[str, float]],
    title: str, y: str,
) -> None:  # fmt: skip
    """One axes for few arms, else a panel for each, with the first arm's mean in all of them."""
    panels = len(names) > MOST_BANDS
    rows, columns = (-(-len(names) // _COLUMNS), _COLUMNS) if panels else (1, 1)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    first = None
    for number, (key, name) in enumerate(names.items()):
        axes = grid[number if panels else 0]
        colour, marker = (BLUE, "o") if panels else (COLOURS[number], MARKERS[number])
        means = _summarise(points[points.key == key].groupby("games").value)
        # Where a seed is missing, the mean would jump.
        means = means[means["count"] == means["count"].max()]
        if first is None:
            first = (name, means["mean"])
        elif panels:
            axes.plot(first[1], color=GREY, lw=1.2, ls="--", label=f"mean of {first[0]}")
        label = "mean of the panel's arm" if panels else _fill(name)
        axes.plot(means["mean"], color=colour, marker=marker, ms=3.5, lw=1.6, label=label)
        low, high = ((means["mean"] + way * means["half"]).clip(0, 100) for way in (-1, 1))
        axes.fill_between(means.index, low, high, color=colour, alpha=0.15, lw=0)
        if panels:
            label_axes(axes, "", x="training games", y=y)
            shown = textwrap.shorten(name, _WIDE, placeholder="...")
            axes.set_title(shown, loc="left", fontsize=9, color=INK)
            axes.label_outer()
    for axes in grid[: len(names) if panels else 1]:
        _draw_levels(axes, levels)
        axes.set_xlim(left=0)
        count_on_x(axes)
    for axes in grid[len(names) :] if panels else ():
        axes.remove()
    if panels:
        legend = figure.legend(
            *grid[1].get_legend_handles_labels(), loc="outside upper left", ncols=2, frameon=False,
            fontsize=9, labelcolor=INK, title=title, alignment="left",
        )  # fmt: skip
        legend.get_title().set(fontsize=11, fontweight="bold", color=INK)
    else:
        label_axes(grid[0], title, x="training games", y=y)
        name_lines(grid[0])


def _draw_dots(
    axes: Axes, trials: Frame, names: dict[str, str], levels: list[tuple[str, float]]
) -> None:
    """A dot for each trial, and a bar for each arm's mean."""
    wins = trials.assign(value=100 * trials[WINS]).dropna(subset="value")
    means = _summarise(wins.groupby("key").value).reindex(list(names))
    for place, key in enumerate(names):
        own = wins[wins.key == key].value
        axes.plot([place] * len(own), own, "o", color=BLUE, ms=5, alpha=0.6)
        mean, half = means["mean"][key], means["half"].fillna(0.0)[key]
        ends = [[min(half, mean)], [min(half, 100.0 - mean)]]
        axes.errorbar([place], [mean], yerr=ends, fmt="_", color=INK, ms=14, capsize=4)
    _draw_levels(axes, levels)
    label_axes(axes, "Validation games won by the best checkpoint of each trial", y=_Y)
    axes.set_xticks(range(len(names)), [*map(_fill, names.values())], rotation=20, ha="right")
    name_lines(axes)


def _draw_levels(axes: Axes, levels: list[tuple[str, float]]) -> None:
    for (name, wins), dashes in zip(levels, (":", "-."), strict=False):
        axes.axhline(wins, color=GREY, lw=1.2, ls=dashes, label=_fill(f"{name}, {wins:.1f} %"))


def _fill(name: str) -> str:
    return textwrap.fill(name, _WIDE, break_long_words=False, break_on_hyphens=False)


def find_teacher(identity: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Name and wins of the player that the study's start imitated, if all arms begin with it.

    Empty where the study or an arm may change the start, the words or the rules.
    """
    from hydra import compose
    from hydra.errors import HydraException

    arms = [word for words in (identity.get("arms") or {}).values() for word in words]
    varied = [*identity.get("overrides", []), *identity["params"], *arms]
    if any(map(_OF_START.match, varied)):
        return []
    # Nothing is known about a start of one's own.
    with suppress(OSError, LookupError, AttributeError, HydraException):
        with compose_from_conf():
            config = compose("config", overrides=identity["stages"][-1])
        record = PACKAGE / config.model.path / "wordle_rl.json"
        stages = json.loads(record.read_text())["stages"]
        players = [stage["player"] for stage in stages if stage.get("player")]
        return [TEACHERS[players[-1]]] if config.words.preset == "original" else []
    return []
