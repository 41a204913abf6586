"""Chooses a run's precision and number of CPU threads, by timing the options.

Backends supply the work that is timed. This file decides, and words the reasons. For threads it
compares only one thread with all of them.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

K = TypeVar("K")
Precision = Literal["fp32", "bf16"]

# bf16 is less exact, and a smaller speedup could come from other load on the machine.
BF16_SPEEDUP = 1.3
# A smaller difference between two timings is noise.
THREADS_SPEEDUP = 1.1
SLOW_STEP = 3.0  # times the median: a slower step suggests that other programs took cores
RECHECK_SECONDS = 60.0  # no single step shows load that grows slowly, or ends
_HISTORY, _LEAST_HISTORY = 20, 3  # steps in the median: at most, at least

_PRECISION_BUDGET = 0.2  # seconds
_THREADS_BUDGET = 0.3

_WIDEST = 1024  # larger matrices are cut to this, which does not change which precision wins
_FLOPS = 5e7  # of one timed product: 20 ms on the slowest processor that was tried
_MOST_ROWS = 512


def read_layer_shape(config: Mapping[str, Any]) -> tuple[int, int]:
    """Width of a model's layers and of their feed-forward layers, from its config.json.

    Falls back to common widths when the config names none, or a different one per layer.
    """
    width, inner = config.get("hidden_size"), config.get("intermediate_size")
    width = width if isinstance(width, int) else _WIDEST
    return width, inner if isinstance(inner, int) else 4 * width


def choose_timed_sizes(shape: tuple[int, int]) -> tuple[int, int, int]:
    """Rows, width and feed-forward width of the products to time, for layers of this shape."""
    width, inner = (min(size, _WIDEST) for size in shape)
    return min(int(_FLOPS / (2 * width * inner)), _MOST_ROWS), width, inner


def time_in_turns(
    works: Mapping[K, Callable[[], object]],
    budget: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[K, list[float]]:
    """Seconds of each call of each work. The works take turns for `budget` seconds.

    A first round warms up and does not count. At least one round counts.
    """
    seconds: dict[K, list[float]] = {key: [] for key in works}
    begin = clock()
    for work in works.values():
        work()
    while not all(seconds.values()) or clock() - begin < budget:
        for key, work in works.items():
            start = clock()
            work()
            seconds[key].append(clock() - start)
    return seconds


def choose_faster_precision(
    works: Mapping[Precision, Callable[[], object]],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Precision, str]:
    """The precision to compute with, and a sentence that says why.

    works: the same products in fp32 and in bf16. Compares the fastest call of each, because other
    programs disturbed it least.
    """
    seconds = time_in_turns(works, _PRECISION_BUDGET, clock)
    speedup = min(seconds["fp32"]) / min(seconds["bf16"])
    if speedup >= BF16_SPEEDUP:
        return "bf16", f"bf16: {speedup:.1f} times as fast as fp32 on this processor"
    if speedup >= 1.05:
        return "fp32", f"fp32: bf16 is only {speedup:.1f} times as fast on this processor"
    if speedup >= 0.95:
        return "fp32", "fp32: bf16 is no faster on this processor"
    return "fp32", f"fp32: bf16 is {1 / speedup:.1f} times slower on this processor"


@dataclass(kw_only=True)
class Threads:
    """The number of CPU threads of this process: fixed, or the faster of one and all.

    most: the largest number allowed. use: sets the number. work: resembles decoding and is timed to
    choose; without it the number stays at `most`.
    """

    most: int
    use: Callable[[int], None]
    work: Callable[[], object] | None = None
    clock: Callable[[], float] = time.monotonic
    count: int = field(init=False)
    _steps: deque[float] = field(init=False)  # seconds of the latest steps on `count` threads
    _timed: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._set(self.most)

    def choose(self) -> str | None:
        """Time one thread against all and use the faster. Returns a sentence about a change."""
        if self.work is None or self.most == 1:
            return None
        works = {count: self._work_on(count) for count in (1, self.most)}
        spent = {n: sum(s) for n, s in time_in_turns(works, _THREADS_BUDGET, self.clock).items()}
        before, other = self.count, 1 if self.count > 1 else self.most
        speedup = spent[before] / spent[other]
        self._set(other if speedup > THREADS_SPEEDUP else before)
        self._timed = self.clock()
        if self.count == before:
            return None
        if self.count == 1:
            return (
                f"1 thread from now on: {self.most} threads take {speedup:.1f} times as long; "
                "other programs may be using the cores"
            )
        return f"{self.most} threads from now on: {speedup:.1f} times as fast as one"

    def ask_again(self, seconds: float) -> bool:
        """Whether to choose() again: a step took unusually long, or a minute has passed."""
        if self.work is None or self.most == 1:
            return False
        enough = len(self._steps) >= _LEAST_HISTORY
        slow = enough and seconds > SLOW_STEP * statistics.median(self._steps)
        self._steps.append(seconds)
        return slow or self.clock() - self._timed >= RECHECK_SECONDS

    def _work_on(self, count: int) -> Callable[[], object]:
        def work() -> None:
            assert self.work is not None
            self.use(count)
            self.work()

        return work

    def _set(self, count: int) -> None:
        self.use(count)
        self.count = count
        self._steps = deque(maxlen=_HISTORY)


@dataclass(frozen=True, kw_only=True)
class Computing:
    """How a policy computes.

    reasons: a sentence on each choice that was made at the start, most of them by timing. threads:
    None when the backend has no CPU threads to choose.
    """

    precision: Precision
    reasons: tuple[str, ...] = ()
    threads: Threads | None = None

    def with_notes(self, notes: Iterable[str]) -> Computing:
        """The same with more sentences for the user."""
        return replace(self, reasons=(*self.reasons, *notes))

    def record(self) -> dict[str, Any]:
        """The entry in the run's manifest."""
        count = None if self.threads is None else self.threads.count
        return {"precision": self.precision, "threads": count, "reasons": list(self.reasons)}
