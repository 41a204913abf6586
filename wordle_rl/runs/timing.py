"""Measures where the time of a step goes, and limits the time of foreign work."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T], what: str) -> T:
    """What the work returns. After that time it goes on in vain, and TimeoutError is raised."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"{what} takes more than {seconds:g} s") from None


class Timers:
    """Adds up wall-clock seconds by name; a block nested in its thread counts for itself alone."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._stacks: defaultdict[int, list[float]] = defaultdict(list)  # of each thread
        self._names: list[str] = []  # of all threads

    @property
    def now(self) -> str:
        """The name of the innermost block that is running, empty outside all. For any thread."""
        names = self._names[-1:]
        return names[0] if names else ""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start, stack = time.perf_counter(), self._stacks[threading.get_ident()]
        stack.append(0.0)
        self._names.append(name)
        try:
            yield
        finally:
            self._names.remove(name)
            duration = time.perf_counter() - start
            self._seconds[name] += duration - stack.pop()
            if stack:
                stack[-1] += duration

    def take(self) -> dict[str, float]:
        """Seconds by name since the last call."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds
