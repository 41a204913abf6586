"""Curricula decide what a run learns when. One per file, chosen as curriculum=<name>.

Training asks them before and after each step. They look at games and weigh rewards, and know
nothing of tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import RewardSet


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """A curriculum's decisions about the next step."""

    stage: str  # name in logs; a change of it is a switch
    rewards: RewardSet  # the rewards of the step's games
    replayed: tuple[str, ...] = ()  # secrets for the step's last groups, instead of planned ones


@dataclass(kw_only=True)
class Curriculum:
    """Plans each step from its own state, which is saved in checkpoints. This one plans all alike.

    It draws no random numbers, so a resumed run makes the same plans as an uninterrupted one. The
    builder fills in fields called rewards (the run's reward=), secrets (the training secrets) and
    groups (how many a step has).
    """

    rewards: RewardSet
    needs_whole_games: ClassVar[bool] = False  # whether `observe` needs finished games
    kept: ClassVar[tuple[str, ...]] = ()  # the attributes that are its state, which JSON can hold

    def plan(self) -> StepPlan:
        """Plan the next step, without changing the state."""
        return StepPlan(stage="reward", rewards=self.rewards)

    def observe(self, groups: Sequence[Sequence[Game]]) -> None:
        """Look at the games of a step, group by group, once they are played.

        Groups that algorithm.resample replaced are not among them.
        """

    def metrics(self) -> dict[str, float]:
        """The curriculum's progress, by names for the log."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state, for a checkpoint."""
        return {name: getattr(self, name) for name in self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict() returned."""
        for name in self.kept:
            setattr(self, name, state[name])


@dataclass(kw_only=True)
class FromFirst(Curriculum):
    """The base of curricula that lead from another set of rewards to the run's own."""

    first: RewardSet

    def __post_init__(self) -> None:
        if self.first == self.rewards:
            raise ValueError(
                "curriculum.first must differ from reward=, which it leads to: choose another with "
                "reward=... or reward@curriculum.first=..."
            )

    @property
    def arrived(self) -> bool:
        """Whether the next step has the run's own rewards."""
        raise NotImplementedError

    def plan(self) -> StepPlan:
        if self.arrived:
            return StepPlan(stage="reward", rewards=self.rewards)
        return StepPlan(stage="first", rewards=self.first)
