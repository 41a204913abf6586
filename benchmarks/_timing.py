"""Timing in turns, and the numbers made from it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def seconds(run: Callable[[int], object], step: int) -> float:
    begin = time.perf_counter()
    run(step)
    return time.perf_counter() - begin


def alternate(runs: Mapping[str, Callable[[int], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each run in each repeat.

    Every other repeat goes backwards, so a machine that slows down slows all runs alike.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats):
        for name in list(runs)[:: -1 if repeat % 2 else 1]:
            times[name].append(seconds(runs[name], repeat))
    return times


def fastest(runs: Mapping[Any, Callable[[int], object]]) -> Any:
    """The run that takes the fewest seconds. Each is tried twice, to warm up."""
    times = {name: min(seconds(run, 0), seconds(run, 1)) for name, run in runs.items()}
    for name, duration in times.items():
        print(f"  tried {name}: {duration:.2f} s", flush=True)
    return min(times, key=lambda name: times[name])


def rates(games: int, times: Sequence[float]) -> str:
    """Games per second over the repeats."""
    return spread([games / t for t in times], 1)


def speedup(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """How many times faster ours is, in each repeat."""
    return [b / a for a, b in zip(ours, theirs, strict=True)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, least and most."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"
