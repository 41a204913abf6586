"""A study's trials as plain records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.sweeps.space import Params


class ReportError(ValueError):
    """A study cannot be read; the message is one line that names what is missing."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One trial."""

    number: int
    confirms: bool  # whether it belongs to the confirmation with fresh seeds
    state: str  # complete, pruned, failed, running or waiting
    params: Params
    value: float | None  # validation wins of its best checkpoint, 0..1
    figures: Mapping[str, Any]  # from objective.collect_figures; empty while it runs

    @property
    def arm(self) -> dict[str, Any]:
        """Its parameters without the seed."""
        return {name: value for name, value in self.params.items() if name != "seed"}


@dataclass(frozen=True, kw_only=True)
class JudgedGame:
    """A validation game of a trial."""

    confirms: bool  # whether the trial belongs to the confirmation with fresh seeds
    trial: int
    arm: str  # its parameters without the seed
    seed: int
    step: int
    secret: str
    guesses: tuple[str, ...]  # as games.py writes them

    @property
    def won(self) -> bool:
        return self.guesses[-1:] == (self.secret,)


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of the whole, 0..1, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that the report shows."""

    name: str
    question: str
    command: Sequence[str]  # that started it
    identity: Mapping[str, Any]
    analysis: Mapping[str, Any]  # settings of its comparisons; may be empty
    results: tuple[Result, ...]
    games: Mapping[tuple[bool, int], Sequence[JudgedGame]]  # by confirms and number of the trial
    best: Params | None
    importance: Mapping[str, Share]  # of each parameter; may be empty
