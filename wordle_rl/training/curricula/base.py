"""What training asks of a curriculum before and after each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import RewardSet


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """What a curriculum decides about the next step."""

    stage: str  # its name in logs; another one than before is a switch
    rewards: RewardSet  # that judge the step's games
    replayed: tuple[str, ...] = ()  # secrets that take the places of the step's last groups


class Curriculum(ABC):
    """Decides by a state of its own, which is all that changes and is part of a checkpoint.

    It draws no random numbers, so that a resumed run plans what an unbroken one does. A field
    called rewards (the run's reward=), secrets (those that may be trained on) or groups (a step's
    number of them) is filled in by the builder.
    """

    @property
    def needs_whole_games(self) -> bool:
        """Whether `observe` reads how games ended."""
        return False

    @abstractmethod
    def plan(self) -> StepPlan:
        """The next step's plan; changes nothing."""

    @abstractmethod
    def observe(self, groups: Sequence[Sequence[Game]]) -> None:
        """Take note of the games of a step, group by group, after it was learnt from."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Where the curriculum stands, by names for the log."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state as JSON holds it."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict() gave. Raises ValueError for anything else."""


def check_first(first: RewardSet, rewards: RewardSet) -> None:
    """Raise ValueError unless a curriculum has somewhere to go from its first set."""
    if first == rewards:
        raise ValueError(
            "curriculum.first must differ from reward=, which it leads to: choose another with "
            "reward=... or reward@curriculum.first=..."
        )
