"""Two phases by epoch: one set of rewards first, then the run's own."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.training.curricula.base import Plan
from wordle_rl.training.curricula.by_epoch import ByEpoch


@dataclass(kw_only=True)
class Phases(ByEpoch):
    """The set `first` until so many epochs are over, reward= from then on."""

    def plan(self) -> Plan:
        if self.share < 1.0:
            return Plan(stage="first", rewards=self.first)
        return Plan(stage="reward", rewards=self.rewards)
