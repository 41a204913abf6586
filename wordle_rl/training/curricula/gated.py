"""One set of rewards until the policy knows the answer format, then the run's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.training.curricula.base import Curriculum, StepPlan, check_first


@dataclass(kw_only=True)
class Gated(Curriculum):
    """Uses `first` until the share of turns with a readable guess reaches a threshold.

    The share is over the turns of the last `window` steps. The gate stays closed for the first
    `window` steps. Once open, it stays open.
    """

    first: RewardSet
    threshold: float = 0.9
    window: int = 5

    def __post_init__(self) -> None:
        check_first(self.first, self.rewards)
        if not 0.0 < self.threshold <= 1.0:
            raise ValueError(f"curriculum.threshold must be above 0, up to 1, not {self.threshold}")
        if not 1 <= self.window <= 10_000:
            raise ValueError(f"curriculum.window must be 1..10000 steps, not {self.window}")
        self._open = False
        self._recent: list[list[int]] = []  # readable guesses and turns of the last steps

    def plan(self) -> StepPlan:
        if self._open:
            return StepPlan(stage="reward", rewards=self.rewards)
        return StepPlan(stage="first", rewards=self.first)

    def observe(self, groups: Sequence[Sequence[Game]]) -> None:
        turns = [turn for games in groups for game in games for turn in game.turns]
        readable = sum(turn.guess is not None for turn in turns)
        self._recent = [*self._recent, [readable, len(turns)]][-self.window :]
        if len(self._recent) == self.window:
            self._open = self._open or self._format() >= self.threshold

    def _format(self) -> float:
        readable, turns = map(sum, zip(*self._recent, strict=True))
        return readable / turns if turns else 0.0

    def metrics(self) -> dict[str, float]:
        return {"open": float(self._open), "format": self._format() if self._recent else 0.0}

    def state_dict(self) -> dict[str, Any]:
        return {"open": self._open, "recent": self._recent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._open, self._recent = state["open"], state["recent"]
