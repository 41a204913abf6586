"""The pictures of a study: curves, wins, compute, importance and parallel coordinates."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordle_rl.runs.files import write_bytes
from wordle_rl.sweeps.means import Mean
from wordle_rl.sweeps.report import MOST_CURVES, group_by_arm
from wordle_rl.sweeps.results import Result, Study
from wordle_rl.sweeps.space import format_params

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTS = 130  # dots per inch
_LOG = 20  # ratio of numbers from which their scale is logarithmic


def write_plots(study: Study, folder: Path) -> list[tuple[str, str]]:
    """Draw what the study has enough trials for. Returns each picture's title and file name."""
    search = [r for r in study.results if not r.confirms]
    best_arms = _pick_best_arms(search)
    drawn = [
        ("Learning curves", "curves.png", _draw_curves(best_arms)),
        ("Validation wins of each trial", "wins.png", _draw_wins(best_arms)),
        ("Wins against compute", "compute.png", _draw_compute(best_arms)),
        ("Importance", "importance.png", _draw_importance(study)),
        ("Parallel coordinates", "parallel.png", _draw_parallel(search)),
    ]
    for _, name, figure in drawn:
        if figure is not None:
            picture = io.BytesIO()
            figure.savefig(picture, format="png", dpi=_DOTS)
            write_bytes(folder / name, picture.getvalue())
    return [(title, name) for title, name, figure in drawn if figure is not None]


Arms = Sequence[tuple[dict[str, Any], list[Result]]]


def _pick_best_arms(results: Sequence[Result]) -> Arms:
    found = [entry for entry in group_by_arm(results) if any(map(_read_curve, entry[1]))]
    if len(found) <= MOST_CURVES:
        return found

    def wins(entry: tuple[dict[str, Any], list[Result]]) -> float:
        return max((t.value or 0.0 for t in entry[1]), default=0.0)

    return sorted(found, key=wins, reverse=True)[:MOST_CURVES]


def _read_curve(result: Result) -> list[list[float]]:
    return result.figures.get("curve") or []


def _draw_curves(found: Arms) -> Figure | None:
    """Mean validation wins over games, with 95 % intervals over seeds as bands."""
    if not found:
        return None
    figure, axes = _start_figure()
    for number, (arm, trials) in enumerate(found):
        at: dict[float, list[float]] = {}
        for trial in trials:
            for games, wins in _read_curve(trial):
                at.setdefault(games, []).append(100 * wins)
        # A mean over fewer seeds than elsewhere would jump.
        full = max(map(len, at.values()))
        games = sorted(g for g in at if len(at[g]) == full)
        means = [m for g in games if (m := Mean.of(at[g])) is not None]
        middle = [m.mean for m in means]
        colour = f"C{number}"
        axes.plot(games, middle, color=colour, marker="o", ms=3, lw=1.6, label=format_params(arm))
        if full > 1:
            low = [max(m.mean - (m.half or 0.0), 0.0) for m in means]
            high = [min(m.mean + (m.half or 0.0), 100.0) for m in means]
            axes.fill_between(games, low, high, color=colour, alpha=0.12, lw=0)
    axes.set_xlabel("training games")
    axes.set_xlim(left=0)
    return _finish_figure(figure, axes, legend=True)


def _draw_wins(found: Arms) -> Figure | None:
    done = [(arm, [100 * t.value for t in ts if t.value is not None]) for arm, ts in found]
    done = [(arm, values) for arm, values in done if values]
    if not done:
        return None
    figure, axes = _start_figure()
    for place, (_, values) in enumerate(done):
        axes.plot([place] * len(values), values, "o", color=f"C{place}", ms=5, alpha=0.6)
        mean = Mean.of(values)
        assert mean is not None
        axes.errorbar([place], [mean.mean], yerr=mean.half, fmt="_", color="black", capsize=4)
    axes.set_xticks(
        range(len(done)), [format_params(arm) for arm, _ in done], rotation=20, ha="right"
    )
    return _finish_figure(figure, axes)


def _draw_compute(found: Arms) -> Figure | None:
    figure, axes = _start_figure()
    for number, (arm, trials) in enumerate(found):
        spent = [(t.figures["seconds"] / 60, 100 * t.value) for t in trials
                 if t.value is not None and "seconds" in t.figures]  # fmt: skip
        if spent:
            axes.plot(*zip(*spent, strict=True), "o", color=f"C{number}", label=format_params(arm))
    if not axes.lines:
        return None
    axes.set_xlabel("minutes of training")
    axes.set_xlim(left=0)
    return _finish_figure(figure, axes, legend=True)


def _draw_importance(study: Study) -> Figure | None:
    if not study.importance:
        return None
    figure, axes = _start_figure()
    entries = sorted(study.importance.items(), key=lambda item: item[1])
    axes.barh([name for name, _ in entries], [value for _, value in entries], color="#3a6ea5")
    axes.set_xlabel("what sets the better trials apart (PED-ANOVA, shares)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_parallel(results: Sequence[Result]) -> Figure | None:
    """A line for each complete trial through its parameters to its wins, coloured by wins."""
    done = [r for r in results if r.value is not None]
    names = sorted({name for r in done for name in r.params})
    if len(names) < 2 or len(done) < 2:
        return None
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, axes = _start_figure()
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
            axes.text(x, height, f" {label}", fontsize=8, va="center")
    labels = [name.rpartition(".")[2] for name in names]
    axes.set_xticks(range(len(names) + 1), [*labels, "validation wins"])
    axes.set_yticks([])
    figure.colorbar(ScalarMappable(scale, "viridis"), ax=axes, label="validation wins (%)")
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


def _start_figure() -> tuple[Figure, Axes]:
    # Unlike pyplot, a bare Figure leaves no state behind in the process.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.4), layout="constrained")
    return figure, figure.subplots()


def _finish_figure(figure: Figure, axes: Axes, *, legend: bool = False) -> Figure:
    axes.set_ylabel("validation games won (%)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and axes.get_legend_handles_labels()[1]:  # a study of seeds has no names
        axes.legend(frameon=False, fontsize=8)
    return figure
