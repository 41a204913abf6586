"""Plays recently lost secrets again, besides the planned ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from wordle_rl.game.rules import Game
from wordle_rl.runs.instantiate import Within
from wordle_rl.training.curricula import Curriculum, StepPlan

_QUEUE_SIZE = 512  # secrets


@dataclass(kw_only=True)
class Replay(Curriculum):
    """Gives a share of each step's groups to secrets with too many lost games.

    Such secrets wait in a queue, oldest loss first. A secret that is lost again waits again. When
    more than 512 secrets wait, the oldest losses are forgotten.
    """

    needs_whole_games, kept = True, ("_waiting",)
    groups: int  # of a step
    share: Annotated[float, Within(0, 1, "(]")] = 0.25  # of a step's groups, at most
    # A secret is replayed when at least this share of its games was lost, and at most this one.
    lost: Annotated[float, Within(0, 1, "(]")] = 0.5
    most_lost: Annotated[float, Within(0, 1, "(]")] = 1.0

    def __post_init__(self) -> None:
        if not self._limit:
            raise ValueError(
                f"curriculum.share must be {1 / self.groups:.3g} or more for one of the "
                f"rollout.groups={self.groups} to be replayed, not {self.share}"
            )
        self._waiting: list[str] = []  # lost secrets, oldest loss first

    @property
    def _limit(self) -> int:
        """How many groups of a step may be replayed."""
        return math.floor(self.share * self.groups + 1e-9)  # 0.29 x 100 is below 29

    def plan(self) -> StepPlan:
        secrets = tuple(self._waiting[: self._limit])
        return StepPlan(stage="reward", rewards=self.rewards, replayed=secrets)

    def observe(self, groups: Sequence[Sequence[Game]]) -> None:
        replayed = set(self.plan().replayed)
        losses = dict.fromkeys(games[0].secret for games in groups if self._is_lost(games))
        queue = [s for s in self._waiting if s not in replayed and s not in losses]
        self._waiting = [*queue, *losses][-_QUEUE_SIZE:]

    def _is_lost(self, games: Sequence[Game]) -> bool:
        share = sum(game.lost for game in games) / len(games)
        return self.lost <= share <= self.most_lost

    def metrics(self) -> dict[str, float]:
        return {"waiting": float(len(self._waiting))}
