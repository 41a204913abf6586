"""rollout=turn: single guesses. A group is several guesses in the same state.

Each guess has its own reward, as the last turn of a game that ends there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wordle_rl.rollouts.base import RolloutKind, RolloutTask, play_whole_games
from wordle_rl.rollouts.records import Rollout


@dataclass(frozen=True, kw_only=True)
class OneTurn(RolloutKind):
    """Leaves each game after one answer. `history` says where games begin."""

    finishes: ClassVar[bool] = False

    def play(self, task: RolloutTask) -> list[Rollout]:
        return play_whole_games(task, answers=1)
