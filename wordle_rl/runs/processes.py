"""The processes that train one policy together, each on its share of a step's groups.

All of them hold the same weights and run the same code in the same order; a group is never split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Processes(Protocol):
    """What the processes of a run need of each other; every call waits for all of them."""

    @property
    def rank(self) -> int:
        """Number of this process; 0 is the one that writes files."""
        ...

    @property
    def size(self) -> int: ...

    def gather(self, value: T) -> list[T]:
        """The value of each process, in the order of their numbers, in all of them."""
        ...

    def add_up(self, tensors: Sequence[Any]) -> None:
        """Replace each of the backend's tensors, in place, by its sum over the processes.

        All processes get the same bits.
        """
        ...


class OneProcess:
    """A run that is alone."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        return [value]

    def add_up(self, tensors: Sequence[Any]) -> None:
        pass


ALONE = OneProcess()


def share(total: int, processes: Processes) -> range:
    """The places 0..total-1 that are this process's own; neighbours, in the order of ranks."""
    rank, size = processes.rank, processes.size
    return range(total * rank // size, total * (rank + 1) // size)
