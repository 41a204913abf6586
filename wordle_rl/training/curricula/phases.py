"""Two phases by epoch: one set of rewards first, then the run's own."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.training.curricula.base import StepPlan
from wordle_rl.training.curricula.by_epoch import ByEpoch


@dataclass(kw_only=True)
class Phases(ByEpoch):
    """Uses `first` for some epochs, then reward=."""

    def plan(self) -> StepPlan:
        if self.share < 1.0:
            return StepPlan(stage="first", rewards=self.first)
        return StepPlan(stage="reward", rewards=self.rewards)
