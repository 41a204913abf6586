"""A run beside reference runs: seeds of the same settings that references/ keeps.

research/make_references.py writes the files. Each line but the first is a seed's metrics by step.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from wordle_rl.evaluation.reference import (
    LEVEL,
    METRICS,
    Band,
    Curve,
    Exit,
    band_of,
    curve_of,
    find_exit,
)
from wordle_rl.reports.pictures import Picture
from wordle_rl.runs.figures import BLUE, PINK
from wordle_rl.runs.instantiate import ConfigError

FOLDER = Path(__file__).with_name("references")
_ENDING = ".jsonl.xz"


@dataclass(frozen=True)
class Beside:
    """A run beside its reference runs."""

    name: str
    about: Mapping[str, str]  # command, and a note on the seeds
    metrics: Sequence[tuple[Band, Curve, Exit | None]]  # the run's curve, and where it leaves


def list_references() -> list[str]:
    """The names that --reference takes."""
    return sorted(path.name.removesuffix(_ENDING) for path in FOLDER.glob(f"*{_ENDING}"))


def read_reference(name: str) -> tuple[dict[str, str], list[list[dict[str, Any]]]]:
    """What is known of reference runs, and the rows of each seed. Raises ConfigError."""
    if name not in list_references():
        raise ConfigError(f"--reference={name}: it is one of {', '.join(list_references())}")
    with lzma.open(FOLDER / f"{name}{_ENDING}", "rt", encoding="utf-8") as file:
        about, *seeds = map(json.loads, file)
    return about, [seed["rows"] for seed in seeds]


def compare(name: str, rows: Sequence[Mapping[str, Any]]) -> Beside:
    """A run's rows beside reference runs. Raises ConfigError where no metric can be compared."""
    about, seeds = read_reference(name)
    metrics = []
    for metric in METRICS:
        band = band_of(metric, [curve_of(seed, metric) for seed in seeds])
        curve = curve_of(rows, metric)
        if band and any(step in curve for step in band.steps):
            metrics.append((band, curve, find_exit(band, curve)))
    if not metrics:
        raise ConfigError(f"--reference={name}: the run has no step and metric that it has")
    return Beside(name, about, metrics)


def describe(beside: Beside) -> list[str]:
    """A line about all metrics, and one for each."""
    exits = [(exit, band.metric) for band, _, exit in beside.metrics if exit]
    seeds = max(band.seeds for band, _, _ in beside.metrics)
    lines = [f"beside {beside.name}, {seeds} seeds of {beside.about['command']}:"]
    for band, curve, exit in beside.metrics:
        if exit:
            text = (
                f"leaves the band at step {exit.step}: {exit.value:.3g}, "
                f"band {exit.low:.3g} to {exit.high:.3g}"
            )
        else:
            last = max(step for step in band.steps if step in curve)
            text = f"inside the band to step {last}"
        lines.append(f"  {band.metric:<18} {text}")
    if exits:
        first, metric = min(exits, key=lambda one: one[0].step)
        lines.append(f"It leaves first at step {first.step}, by {metric}.")
    return lines


def draw_bands(beside: Beside) -> list[Picture]:
    """A picture for each metric: the run, and the band of the reference runs."""
    pictures = []
    for band, curve, exit in beside.metrics:
        note = (
            f"Of one more run like {beside.name}, {LEVEL:.0%} are in the band at a step "
            f"({band.seeds} seeds). "
        )
        note += f"The run leaves it at step {exit.step}." if exit else "The run stays inside."
        name = f"reference_{band.metric.replace('/', '_')}"
        draw = partial(_draw, band=band, curve=curve, exit=exit, name=beside.name)
        pictures.append(Picture(name, f"{band.metric} beside {beside.name}", note, draw))
    return pictures


def _draw(axes: Axes, band: Band, curve: Curve, exit: Exit | None, name: str) -> None:
    axes.fill_between(band.steps, band.low, band.high, color=BLUE, alpha=0.2, lw=0, label=name)
    steps = [step for step in sorted(curve) if step <= band.steps[-1]]
    axes.plot(steps, [curve[step] for step in steps], color=PINK, lw=1.6, label="this run")
    if exit:
        axes.plot([exit.step], [exit.value], "o", color=PINK, ms=6, label="leaves the band")
    axes.set(xlabel="training step", ylabel=band.metric)
    axes.grid()
