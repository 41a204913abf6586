"""Draws what training taught, from the numbers of wordle_rl.evaluation.learnt. learnt.py is the
command.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.evaluation.learnt import SOLVER, START, TEACHER, TRAINED
from wordle_rl.runs.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    RED,
    label_axes,
    name_panels,
    new_figure,
    save_figure,
    write_caption,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES: dict[str, dict[str, Any]] = {  # of players, alike in all panels
    START: {"color": BLUE, "marker": "o", "ls": "-"},
    TRAINED: {"color": RED, "marker": "s", "ls": "-"},
    TEACHER: {"color": GREY, "marker": "^", "ls": "--"},
    SOLVER: {"color": GREEN, "marker": "D", "ls": ":"},
}
_LABELS = {
    START: "start, before training",
    TRAINED: "trained by reinforcement",
    TEACHER: "a random allowed word that fits all clues",
    SOLVER: "greedy entropy without the list of answers",
}
_BITS = 0.2  # width of a bar among the openers
_NARROW: dict[str, Any] = {"ms": 4.5, "lw": 1.6}
_BEFORE_AFTER = (START, TRAINED, TEACHER)

Numbers = Mapping[str, Any]  # from wordle_rl.evaluation.learnt.measure


def draw_summary(numbers: Numbers, out: Path) -> None:
    """Write four panels as a PNG: attempts, information, openers, losses."""
    figure = new_figure(9.5, 8.2)
    attempts, bits, openers, losses = figure.subplots(2, 2).flat
    temperature = numbers["temperature"]
    _draw_passes(attempts, numbers["passes"][temperature][_stricter(numbers)])
    within = _within(_stricter(numbers), numbers, temperature)
    label_axes(attempts, f"Won in k attempts, {within}", x="attempts k", y="secrets won (%)")
    _draw_turns(bits, numbers["turns"], "bits_ratio")
    label_axes(
        bits, "Information of a guess, by turn", x="turn", y="bits, of the most possible (%)"
    )
    _draw_openers(openers, numbers["openers"])
    label_axes(openers, "First guesses", x="expected information (bits)", y="games in 0.2 bits (%)")
    _draw_families(losses, numbers["losses"]["by family"])
    label_axes(
        losses, "Lost games, by words like the secret",
        x="allowed words that share four letters in place", y="games lost (%)",
    )  # fmt: skip
    _name_players(figure, f"What reinforcement taught, on {numbers['secrets']} test secrets", bits)
    write_caption(figure, _caption(numbers))
    save_figure(figure, out, small=True)


def draw_passes(numbers: Numbers, out: Path) -> None:
    """Write pass@k as a PNG: a row for each temperature, a column for the guesses allowed."""
    passes = numbers["passes"]
    columns = list(passes[numbers["temperature"]])
    figure = new_figure(9.5, 1.6 + 2.7 * len(passes))
    grid = figure.subplots(len(passes), len(columns), sharex=True, squeeze=False)
    for row, (temperature, of_temperature) in zip(grid, passes.items(), strict=True):
        for axes, within in zip(row, columns, strict=True):
            _draw_passes(axes, of_temperature[within])
            top, left = axes in grid[0], axes in grid[:, 0]
            label_axes(
                axes, _within(within, numbers, temperature) if top else "",
                x="" if top and len(passes) > 1 else "attempts k",
                y=f"secrets won (%), temperature {temperature}" if left else "",
            )  # fmt: skip
            axes.set_ylim(None, 101)
    title = f"Secrets won in at least one of k attempts, {numbers['secrets']} test secrets"
    _name_players(figure, title, grid[0][0])
    write_caption(figure, _caption(numbers, drawn_at_first=False))
    save_figure(figure, out, small=True)


def _stricter(numbers: Numbers) -> str:
    """A number of guesses that few games keep to, because most secrets are won in all of them."""
    given = list(numbers["passes"][numbers["temperature"]])
    return given[1] if len(given) > 1 else given[0]


def _within(within: str, numbers: Numbers, temperature: str) -> str:
    most = next(iter(numbers["passes"][temperature]))
    return f"all {most} guesses" if within == most else f"at most {within} guesses"


def _draw_passes(axes: Axes, passes: Mapping[str, Any]) -> None:
    """Curves with their bands, and a thin line for each run."""
    axes.set_xscale("log", base=2)
    for name in _BEFORE_AFTER:
        of = passes[name]
        ks = [int(k) for k in of]
        axes.plot(ks, _percent(of, "pass"), label=_LABELS[name], **_STYLES[name], **_NARROW)
        if name != TEACHER:
            band: Any = {"color": _STYLES[name]["color"], "alpha": 0.15, "lw": 0}
            axes.fill_between(ks, _percent(of, "low"), _percent(of, "high"), **band)
    for run in passes["each run"]:
        axes.plot([int(k) for k in run], _percent(run, "pass"), color=RED, lw=0.7, alpha=0.7)
    ticks = [int(k) for k in passes[START]]
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()


def _percent(of: Mapping[str, Mapping[str, float]], key: str) -> list[float]:
    return [100 * values[key] for values in of.values()]


def _draw_turns(axes: Axes, turns: Mapping[str, Any], key: str) -> None:
    """A share by turn, for all players and thinly for each run."""
    for name in (*_BEFORE_AFTER, SOLVER):
        numbers, shares = _known(turns[name], key)
        axes.plot(numbers, shares, label=_LABELS[name], **_STYLES[name], **_NARROW)
    for run in turns["each run"]:
        axes.plot(*_known(run, key), color=RED, lw=0.7, alpha=0.7)
    axes.set_xticks([int(turn) for turn in turns[START]])
    axes.set_ylim(None, 102)


def _known(turns: Mapping[str, Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Turns and percentages, without turns at which nobody guessed."""
    found = {int(turn): of.get(key) for turn, of in turns.items()}
    return (
        [turn for turn, share in found.items() if share is not None],
        [100 * share for share in found.values() if share is not None],
    )


def _draw_openers(axes: Axes, openers: Mapping[str, Any]) -> None:
    """A histogram of the bits of first guesses."""
    edges = np.arange(3.0, 6.0 + _BITS, _BITS)
    for name in _BEFORE_AFTER:
        bins = openers["bits"][name]
        middles = np.clip([float(low) + 0.05 for low in bins], edges[0], None)
        shares, _ = np.histogram(middles, edges, weights=list(bins.values()))
        style = {key: _STYLES[name][key] for key in ("color", "ls")}
        axes.stairs(100 * shares, edges, lw=1.8, **style)
        if name != TEACHER:
            axes.stairs(100 * shares, edges, fill=True, color=style["color"], alpha=0.12, lw=0)
    best = openers["best_bits"]
    axes.axvline(best, color=INK, lw=1, ls=":")
    place: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    text: Any = {"rotation": 90, "va": "top", "fontsize": 8.5, "color": INK}
    axes.annotate(f"best word: {best:.2f} bits", (best, 1), (4, -2), **place, **text)


def _draw_families(axes: Axes, rates: Mapping[str, Any]) -> None:
    """Share of lost games by the size of the secret's largest family, with intervals."""
    labels = list(rates[START])
    for shift, name in zip((-0.12, 0.0, 0.12), _BEFORE_AFTER, strict=True):
        lost, low, high = (
            np.array([100 * rates[name][label][key] for label in labels])
            for key in ("lost", "low", "high")
        )
        style = {**_STYLES[name], "ls": ""}
        error = np.maximum([lost - low, high - lost], 0)
        axes.errorbar(np.arange(len(labels)) + shift, lost, error, capsize=3, **style, **_NARROW)
    names = [f"{label}\n({rates[START][label]['secrets']} secrets)" for label in labels]
    axes.set_xticks(range(len(labels)), names)
    axes.set_ylim(0, None)


def _name_players(figure: Figure, title: str, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    name_panels(figure, title, handles, names)


def _caption(numbers: Numbers, *, drawn_at_first: bool = True) -> str:
    """What lines and bands are, and over how much."""
    games = (
        f"{numbers['samples']} games on each secret by the start, each of {numbers['runs']} "
        "trained runs, and the teacher."
    )
    drawn = f" Guesses drawn at temperature {numbers['temperature']}." if drawn_at_first else ""
    bands = "Bands and bars: 95 % intervals over secrets. Thin lines: each run."
    return f"{games}{drawn}\n{bands}"
