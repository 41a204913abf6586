"""The pictures of a study: curves, wins, compute, importance and parallel coordinates.

Each has a title in words, units, and a line that says what its bands are and over how many seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordle_rl.runs.figures import (
    BLUE,
    COLOURS,
    INK,
    MARKERS,
    MOST_BANDS,
    label_axes,
    name_lines,
    new_figure,
    save_figure,
    write_caption,
)
from wordle_rl.sweeps.curves import (
    WINS,
    Arms,
    References,
    describe_interval,
    draw_curves,
    draw_levels,
    find_start,
    measure_curve,
    name_arm,
    pick_levels,
    read_curve,
    say_numbers,
    wrap_name,
)
from wordle_rl.sweeps.means import Mean
from wordle_rl.sweeps.measures import find_measure
from wordle_rl.sweeps.report import MOST_CURVES, group_by_arm
from wordle_rl.sweeps.results import Result, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BEHIND = {"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 0.5}  # a text that crosses lines
_LOG = 20  # ratio of numbers from which their scale is logarithmic


def write_plots(
    study: Study, folder: Path, references: References = (), *, keep: bool = False
) -> list[tuple[str, str]]:
    """Draw what the study has enough trials for. Returns each picture's title and file name.

    references: players to compare with. One far from all arms is left out of a picture. keep:
    whether a picture that cannot be drawn, but is there, stays. It may come from trials whose
    curves results.csv does not have.
    """
    search = [r for r in study.results if not r.confirms]
    best_arms = _pick_best_arms(search)
    measure = find_measure(study.analysis)
    title = f"{measure.title[:1].upper()}{measure.title[1:]}"
    over_time = None
    if measure.over_time:
        read = measure_curve(study, measure)
        over_time = draw_curves(best_arms, read=read, title=title, y="share (%)")
    drawn = [
        (title, "over_time.png", over_time),
        ("Learning curves", "curves.png", draw_curves(best_arms, references)),
        ("Validation wins of each trial", "wins.png", _draw_wins(best_arms, references)),
        ("Wins against compute", "compute.png", _draw_compute(best_arms)),
        ("Importance", "importance.png", _draw_importance(study)),
        ("Parallel coordinates", "parallel.png", _draw_parallel(search)),
    ]
    for _, name, figure in drawn:
        if figure is not None:
            save_figure(figure, folder / name)
        elif not keep:
            (folder / name).unlink(missing_ok=True)
    return [(title, name) for title, name, _ in drawn if (folder / name).exists()]


def _pick_best_arms(results: Sequence[Result]) -> Arms:
    found = [entry for entry in group_by_arm(results) if any(map(read_curve, entry[1]))]
    if len(found) <= MOST_CURVES:
        return found

    def wins(entry: tuple[dict[str, Any], list[Result]]) -> float:
        return max((t.value or 0.0 for t in entry[1]), default=0.0)

    return sorted(found, key=wins, reverse=True)[:MOST_CURVES]


def _draw_wins(found: Arms, references: References) -> Figure | None:
    wins = [(name_arm(arm, ts), [100 * t.value for t in ts if t.value is not None])
            for arm, ts in found]  # fmt: skip
    done = [(name, values) for name, values in wins if values]
    if not done:
        return None
    figure = new_figure(9, 4.6)
    axes = figure.subplots()
    for place, (_, values) in enumerate(done):
        axes.plot([place] * len(values), values, "o", color=BLUE, ms=5, alpha=0.6)
        mean = Mean.of(values)
        assert mean is not None
        half = mean.half or 0.0
        ends = [[min(half, mean.mean)], [min(half, 100.0 - mean.mean)]]
        axes.errorbar([place], [mean.mean], yerr=ends, fmt="_", color=INK, ms=14, capsize=4)
    start, every = find_start(found), [value for _, values in done for value in values]
    draw_levels(axes, pick_levels(every, start, references))
    counts = [len(values) for _, values in done]
    label_axes(axes, "Validation games won by the best checkpoint of each trial", y=WINS)
    axes.set_xticks(
        range(len(done)),
        [wrap_name(name) for name, _ in done],
        rotation=20,
        ha="right",
    )
    name_lines(axes)
    note = describe_interval("Bar", counts) + say_numbers(found)
    write_caption(figure, f"Dot: a trial. Dash: the mean. {note}")
    return figure


def _draw_compute(found: Arms) -> Figure | None:
    figure = new_figure(9, 4.6)
    axes = figure.subplots()
    for number, (arm, trials) in enumerate(found):
        spent = [(t.figures["seconds"] / 60, 100 * t.value) for t in trials
                 if t.value is not None and "seconds" in t.figures]  # fmt: skip
        if spent:
            filled = "none" if number >= MOST_BANDS else COLOURS[number]
            axes.plot(
                *zip(*spent, strict=True), MARKERS[number % MOST_BANDS], mfc=filled,
                color=COLOURS[number % MOST_BANDS], label=wrap_name(name_arm(arm, trials)),
            )  # fmt: skip
    if not axes.lines:
        return None
    label_axes(axes, "Validation games won against time", x="minutes spent on training", y=WINS)
    axes.set_xlim(left=0)
    name_lines(axes)
    write_caption(figure, f"Each mark is a trial. Time depends on the machine.{say_numbers(found)}")
    return figure


def _draw_importance(study: Study) -> Figure | None:
    if not study.importance:
        return None
    figure = new_figure(9, 1.6 + 0.4 * len(study.importance))
    axes = figure.subplots()
    entries = sorted(study.importance.items(), key=lambda item: item[1].value)
    shares = [share for _, share in entries]
    axes.barh(
        [name for name, _ in entries], [share.value for share in shares], color=BLUE,
        xerr=[[max(share.value - share.low, 0.0) for share in shares],
              [max(share.high - share.value, 0.0) for share in shares]],
        ecolor=INK, capsize=4,
    )  # fmt: skip
    label_axes(axes, "What sets the better trials apart", x="share of the importance (PED-ANOVA)")
    states = [r.state for r in study.results if not r.confirms]
    complete, pruned = states.count("complete"), states.count("pruned")
    trials = f"n = {complete} complete trials"
    if pruned:
        trials = f"n = {complete + pruned} trials, each judged by its first validation"
    write_caption(figure, f"{trials}. Bars: 90 % intervals from trials drawn again.")
    return figure


def _draw_parallel(results: Sequence[Result]) -> Figure | None:
    """A line for each complete trial through its parameters to its wins, coloured by wins."""
    done = [r for r in results if r.value is not None]
    names = sorted({name for r in done for name in r.params})
    if len({*names} - {"seed"}) < 2 or len(done) < 2:  # one parameter is seen better in wins.png
        return None
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure = new_figure(9, 4.6)
    axes = figure.subplots()
    wins = [100 * (r.value or 0.0) for r in done]
    scale = Normalize(min(wins), max(wins) if max(wins) > min(wins) else min(wins) + 1)
    places = {name: _scale_values([r.params.get(name) for r in done]) for name in names}
    for i, r in enumerate(done):
        heights = [places[name][r.params.get(name)] for name in names] + [scale(wins[i])]
        axes.plot(
            range(len(names) + 1), heights, color=colormaps["viridis"](scale(wins[i])), lw=1.2
        )
    for x, name in enumerate(names):
        ends = sorted(places[name].items(), key=lambda item: item[1])
        for value, height in ends if len(ends) <= 8 else (ends[0], ends[-1]):
            label = f"{value:.3g}" if isinstance(value, float) else str(value)
            axes.text(x, height, f" {label}", fontsize=8, va="center", color=INK, bbox=_BEHIND)
    labels = [name.rpartition(".")[2] for name in names]
    label_axes(axes, "Parameters and validation wins of every complete trial")
    axes.grid(visible=False)
    axes.set_xticks(range(len(names) + 1), [*labels, "validation wins"])
    axes.set_yticks([])
    figure.colorbar(ScalarMappable(scale, "viridis"), ax=axes, label=WINS)
    write_caption(figure, f"Each line is a trial, n = {len(done)}.")
    return figure


def _scale_values(values: Sequence[Any]) -> dict[Any, float]:
    """The height of each value, 0..1: numbers by size, other values by order."""
    distinct = list(dict.fromkeys(values))
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in distinct)
    if len(distinct) == 1:
        return {distinct[0]: 0.5}
    if numbers:
        low, high = min(distinct), max(distinct)
        if low > 0 and high / low >= _LOG:
            return {v: math.log(v / low) / math.log(high / low) for v in distinct}
        return {v: (v - low) / (high - low) for v in distinct}
    return {v: i / (len(distinct) - 1) for i, v in enumerate(sorted(distinct, key=str))}
