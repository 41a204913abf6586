"""The processes that train one policy together, each on its share of a step's groups.

All of them hold the same weights and run the same code in the same order; a group is never split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Processes(Protocol):
    """How the processes of a run exchange data; every call waits for all of them."""

    @property
    def rank(self) -> int:
        """Number of this process; 0 is the one that writes files."""
        ...

    @property
    def size(self) -> int: ...

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks; every process gets them."""
        ...

    def add_up(self, tensors: Sequence[Any]) -> None:
        """Replace each of the backend's tensors, in place, by its sum over the processes.

        All processes get the same bits.
        """
        ...


class OneProcess:
    """The only process of a run."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        return [value]

    def add_up(self, tensors: Sequence[Any]) -> None:
        pass


ALONE = OneProcess()


def share(total: int, processes: Processes) -> range:
    """This process's own indices of 0..total-1; contiguous, in the order of ranks."""
    rank, size = processes.rank, processes.size
    return range(total * rank // size, total * (rank + 1) // size)
