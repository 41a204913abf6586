"""Which process of a run this is, when torchrun started several on one or more machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from wordle_rl.runs.instantiate import ConfigError

# torchrun sets these for each process (https://docs.pytorch.org/docs/stable/elastic/run.html).
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
_VARIABLES = (*_NUMBERS, "MASTER_ADDR")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The place of a process among all that train one policy.

    rank: 0 to size - 1 over all machines; 0 leads. local_rank: the same on its own machine, where
    there are local_size. address, port: where the processes find each other.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int

    def variables(self) -> dict[str, str]:
        """The environment variables that say the same."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.port)
        told = dict(zip(_NUMBERS, map(str, numbers), strict=True))
        return {**told, "MASTER_ADDR": self.address}


def read_launch() -> Launch | None:
    """What the environment says about this process. None for a process of its own.

    Raises ConfigError for variables that do not fit together.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return None
    if lacking := [name for name in _VARIABLES if name not in os.environ]:
        raise ConfigError(
            f"WORLD_SIZE={size} is in the environment without {', '.join(lacking)}: "
            "start the processes with torchrun, or unset WORLD_SIZE"
        )
    given = {name: os.environ[name] for name in _NUMBERS}
    for name, text in given.items():
        if not text.isdecimal():
            raise ConfigError(f"{name} must be a whole number in the environment, not {text!r}")
    numbers = [int(text) for text in given.values()]
    launch = Launch(
        rank=numbers[0], size=numbers[1], local_rank=numbers[2], local_size=numbers[3],
        address=os.environ["MASTER_ADDR"], port=numbers[4],
    )  # fmt: skip
    if launch.rank >= launch.size or launch.local_rank >= launch.local_size:
        raise ConfigError(
            f"RANK must be below WORLD_SIZE and LOCAL_RANK below LOCAL_WORLD_SIZE, not {given}"
        )
    return launch


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
