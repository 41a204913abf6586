"""One worker thread with a queue and a time limit, because a model serves one thread at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from wordle_rl.web.refused import Refused

Stop = Callable[[], bool]
Result = TypeVar("Result")


class Lane:
    """Does one piece of work after the other.

    Work takes a function that says whether to stop early, and asks it often: a thread cannot be
    ended from outside.
    """

    def __init__(self, seconds: float, most: int = 8) -> None:
        """seconds: a request waits this long at most. most: pieces of work, waiting ones included.

        A request beyond that is refused at once.
        """
        self._seconds, self._most = seconds, most
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lane")
        self._lock = threading.Lock()
        self._open: set[threading.Event] = set()

    def call(self, work: Callable[[Stop], Result]) -> Result:
        """Do some work and wait for it as long as it takes."""
        return self._submit(work)[0].result()

    async def run(self, work: Callable[[Stop], Result]) -> Result:
        """Do some work for a request. Raises Refused when it is too much or takes too long."""
        with self._lock:
            if len(self._open) >= self._most:
                raise Refused(503, "too many requests are waiting: try again in a moment")
        future, stop = self._submit(work)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError:
            raise Refused(504, f"this took more than {self._seconds:g} seconds") from None
        finally:
            stop.set()

    def close(self) -> None:
        """Stop what is being done, and drop what waits."""
        with self._lock:
            for stop in self._open:
                stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[Stop], Result]) -> tuple[Future[Result], threading.Event]:
        stop = threading.Event()
        with self._lock:
            self._open.add(stop)
        future = self._pool.submit(work, stop.is_set)
        future.add_done_callback(lambda _: self._leave(stop))
        return future, stop

    def _leave(self, stop: threading.Event) -> None:
        with self._lock:
            self._open.discard(stop)
