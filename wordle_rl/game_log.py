"""Which games of a step are shown and logged: one of each secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wordle_rl.game import Game
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.step import StepResult


@dataclass(frozen=True, kw_only=True)
class ShownGame:
    """A game of a step and how it was judged."""

    game: Game
    reward: GameReward
    advantage: float  # mean over its turns
    candidates: list[list[dict[str, Any]]] = field(default_factory=list)  # of each turn, if any

    @property
    def more(self) -> Mapping[str, Any]:
        """What its line in games.jsonl holds beyond the game itself."""
        return {"candidates": self.candidates} if self.candidates else {}


def shown_games(result: StepResult, num_generations: int) -> Iterator[ShownGame]:
    """The first game of each group; with candidates, each game with those of all its turns."""
    games: dict[int, list[int]] = {}
    for i, rollout in enumerate(result.rollouts):
        if rollout.within is not None:
            games.setdefault(id(rollout.within), []).append(i)
        elif i % num_generations == 0:
            yield _one(result, i)
    for members in games.values():
        yield _with_candidates(result, members, num_generations)


def _one(result: StepResult, i: int) -> ShownGame:
    advantages = result.advantages[i]
    return ShownGame(
        game=result.rollouts[i].game,
        reward=result.rewards[i],
        advantage=float(advantages.mean()) if len(advantages) else 0.0,
    )


def _with_candidates(result: StepResult, members: list[int], num_generations: int) -> ShownGame:
    """The game that these rollouts, turn by turn, were candidates in."""
    game = result.rollouts[members[0]].within
    assert game is not None
    taken = [i for i in members if result.rollouts[i].taken]
    described = [
        {
            "guess": result.rollouts[i].game.turns[0].guess,
            "reward": result.rewards[i].total,
            "advantage": float(result.advantages[i][0]),
            "taken": result.rollouts[i].taken,
        }
        for i in members
    ]
    turns = range(0, len(described), num_generations)
    return ShownGame(
        game=game,
        reward=GameReward(turns=tuple(result.rewards[i].turns[0] for i in taken)),
        advantage=float(np.mean([result.advantages[i][0] for i in taken])),
        candidates=[described[first : first + num_generations] for first in turns],
    )
