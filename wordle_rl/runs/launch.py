"""Which process of a run this is, when torchrun started several on one or more machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from wordle_rl.runs.instantiate import ConfigError

# torchrun sets these for each process (https://docs.pytorch.org/docs/stable/elastic/run.html).
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
_VARIABLES = (*_NUMBERS, "MASTER_ADDR")
_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


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
        names = {
            "RANK": self.rank, "WORLD_SIZE": self.size, "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_size, "MASTER_ADDR": self.address,
            "MASTER_PORT": self.port,
        }  # fmt: skip
        return {name: str(value) for name, value in names.items()}


def read_launch() -> Launch | None:
    """What the environment says about this process. None for a process of its own.

    Raises ConfigError for variables that do not fit together.
    """
    given = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if given.get("WORLD_SIZE", "1") == "1":
        return None
    if lacking := [name for name in _VARIABLES if name not in given]:
        raise ConfigError(
            f"WORLD_SIZE={given['WORLD_SIZE']} is in the environment without {', '.join(lacking)}: "
            "start the processes with torchrun, or unset WORLD_SIZE"
        )
    numbers = {name: _read_number(name, given[name]) for name in _NUMBERS}
    for place, size in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        if numbers[place] >= numbers[size]:
            raise ConfigError(f"{place} must be below {size}={numbers[size]}, not {given[place]}")
    return Launch(
        rank=numbers["RANK"],
        size=numbers["WORLD_SIZE"],
        local_rank=numbers["LOCAL_RANK"],
        local_size=numbers["LOCAL_WORLD_SIZE"],
        address=given["MASTER_ADDR"],
        port=numbers["MASTER_PORT"],
    )


def _read_number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{name} must be a whole number in the environment, not {text!r}")
    return int(text)


def has_agent_store() -> bool:
    """Whether torchrun itself serves the store at the address. Otherwise the first process does."""
    return os.environ.get(_AGENT_STORE) == "True"


def check_first_start() -> None:
    """Raise ConfigError where torchrun started the processes once more after a failure."""
    if os.environ.get(_RESTARTS, "0") != "0":
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
