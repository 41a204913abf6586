"""rollout=game: whole games. A group is several games with one secret from the same state."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.rollouts.base import RolloutKind, RolloutTask, play_whole_games
from wordle_rl.rollouts.records import Rollout


@dataclass(frozen=True, kw_only=True)
class WholeGame(RolloutKind):
    """Plays each game to its end."""

    def play(self, task: RolloutTask) -> list[Rollout]:
        return play_whole_games(task)
