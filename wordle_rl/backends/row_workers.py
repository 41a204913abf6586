"""Parts of a batch side by side, each on one core.

Torch splits every operation over all cores and waits for the slowest after each; with the small
operations of a small model that waiting takes a quarter of the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


class RowWorkers:
    """One thread per core that torch may use. What it runs must be safe to run side by side."""

    def __init__(self) -> None:
        self._count = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._count)
        # The setting holds for the thread that makes it and for threads to come, so each worker
        # makes it once (the barrier lets none do it twice) and the caller takes it back.
        together = threading.Barrier(self._count)

        def settle(_: int) -> None:
            together.wait()
            torch.set_num_threads(1)

        if self._count > 1:
            list(self._pool.map(settle, range(self._count)))
            torch.set_num_threads(self._count)

    def run(
        self, function: Callable[[slice], torch.Tensor], rows: int, *, least: int
    ) -> torch.Tensor:
        """function of slices that together are all rows, of about `least` rows or more each.

        Returns what it gives in one tensor, in the order of the rows.
        """
        count = max(min(self._count, rows // max(least, 1)), 1)
        if count == 1:
            return function(slice(0, rows))
        ends = [rows * i // count for i in range(count + 1)]
        parts = [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]
        return torch.cat(list(self._pool.map(torch.inference_mode()(function), parts)))
