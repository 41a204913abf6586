"""How a process computes: its precision and CPU threads, chosen by timing at the start of a run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

K = TypeVar("K")
Precision = Literal["fp32", "bf16", "fp16"]

# bf16 is less exact, and a smaller speedup could come from other load on the machine.
BF16_SPEEDUP = 1.3
_THREADS_SPEEDUP = 1.1  # a smaller difference between two timings is noise
_BUDGET = 0.3  # seconds of each comparison
_WIDEST = 1024  # larger matrices are cut to this, which does not change which choice wins
_FLOPS = 5e7  # of one timed product: 20 ms on the slowest processor that was tried
_MOST_ROWS = 512


@dataclass(frozen=True, kw_only=True)
class Computing:
    """How a policy computes.

    reasons: a sentence on each choice that was made by timing. threads: None when the backend has
    no CPU threads to choose.
    """

    precision: Precision
    reasons: tuple[str, ...] = ()
    threads: int | None = None

    def with_notes(self, notes: Iterable[str]) -> Computing:
        """The same with more sentences for the user."""
        return replace(self, reasons=(*self.reasons, *notes))

    def record(self) -> dict[str, Any]:
        """The entry in the run's manifest."""
        return asdict(self) | {"reasons": list(self.reasons)}


def timed_sizes(width: int, inner: int) -> tuple[int, int, int]:
    """Rows, width and feed-forward width of the products to time, for layers of this shape."""
    width, inner = min(width, _WIDEST), min(inner, _WIDEST)
    return min(int(_FLOPS / (2 * width * inner)), _MOST_ROWS), width, inner


def time_in_turns(
    works: Mapping[K, Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> dict[K, float]:
    """The median of each work's seconds. A first round warms up, and at least one more counts."""
    seconds: dict[K, list[float]] = {key: [] for key in works}
    begin = clock()
    for work in works.values():
        work()
    while not all(seconds.values()) or clock() - begin < _BUDGET:
        for key, work in works.items():
            start = clock()
            work()
            seconds[key].append(clock() - start)
    return {key: statistics.median(spent) for key, spent in seconds.items()}


def choose_precision(seconds: Mapping[Any, float]) -> tuple[Precision, str]:
    """The precision to compute with, and a sentence that says why.

    seconds: of the same products in fp32 and in bf16.
    """
    speedup = seconds["fp32"] / seconds["bf16"]
    chosen = "bf16" if speedup >= BF16_SPEEDUP else "fp32"
    return chosen, f"{chosen}: bf16 is {speedup:.1f} times as fast as fp32 on this processor"


def choose_threads(seconds: Mapping[int, float]) -> tuple[int, str | None]:
    """All threads or one, and a sentence that says why it is one.

    seconds: of the same work on 1 thread and on all of them.
    """
    most = max(seconds)
    speedup = seconds[most] / seconds[1]
    if speedup <= _THREADS_SPEEDUP:
        return most, None
    return 1, (
        f"1 thread: {most} take {speedup:.1f} times as long; other programs may be using the cores"
    )
