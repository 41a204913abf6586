"""No curriculum: every step has the rewards of reward= and its planned secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.training.curricula.base import Curriculum, StepPlan


@dataclass(kw_only=True)
class NoCurriculum(Curriculum):
    """Plans every step the same."""

    rewards: RewardSet

    def plan(self) -> StepPlan:
        return StepPlan(stage="reward", rewards=self.rewards)

    def observe(self, groups: Sequence[Sequence[Game]]) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
