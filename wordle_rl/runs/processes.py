"""The processes that train one policy together, each on its share of a step's groups.

All of them hold the same weights and run the same code in the same order; a group is never split.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from wordle_rl.runs.instantiate import ConfigError

T = TypeVar("T")
# torchrun sets these for each process (https://docs.pytorch.org/docs/stable/elastic/run.html).
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
_VARIABLES = (*_NUMBERS, "MASTER_ADDR")


class Processes:
    """How the processes of a run exchange data: here the only one. Each call waits for all."""

    rank = 0  # of the process that writes files
    size = 1

    def gather(self, value: T) -> list[T]:
        """Every process's value, in the order of ranks."""
        return [value]

    def add_up(self, tensors: Sequence[Any]) -> None:
        """Replace each tensor, in place, by its sum over the processes, with the same bits."""


ALONE = Processes()


def share(total: int, processes: Processes) -> range:
    """This process's own indices of 0..total-1; contiguous, in the order of ranks."""
    rank, size = processes.rank, processes.size
    return range(total * rank // size, total * (rank + 1) // size)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The place of a process among all that train one policy."""

    rank: int  # 0 to size - 1 over all machines; 0 leads
    size: int
    local_rank: int  # the same on its own machine
    local_size: int
    address: str  # where the processes find each other
    port: int

    def variables(self) -> dict[str, str]:
        """The environment variables that say the same."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.port)
        values = dict(zip(_NUMBERS, map(str, numbers), strict=True))
        return {**values, "MASTER_ADDR": self.address}


def read_launch() -> Launch | None:
    """What torchrun's variables say about this process. None for a process of its own."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return None
    if names := [name for name in _VARIABLES if name not in os.environ]:
        raise ConfigError(
            f"WORLD_SIZE={size} is in the environment without {', '.join(names)}: "
            "start the processes with torchrun, or unset WORLD_SIZE"
        )
    rank, world, local_rank, local_size, port = (int(os.environ[name]) for name in _NUMBERS)
    return Launch(
        rank=rank,
        size=world,
        local_rank=local_rank,
        local_size=local_size,
        address=os.environ["MASTER_ADDR"],
        port=port,
    )


def check_first_start() -> None:
    """Raise ConfigError where torchrun started the processes once more after a failure."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        raise ConfigError(
            "torchrun started the processes again, which would begin a new run: leave out "
            "--max-restarts, and continue the run with resume=latest"
        )


def without_launch(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what torchrun adds, for a process of its own."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _VARIABLES and not name.startswith("TORCHELASTIC_")
    }
