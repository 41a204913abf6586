"""Supervised fine-tuning: cross-entropy on the guesses of a scripted player.

The rollouts are the player's games, written as if the policy had played them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from wordle_rl.algorithms.base import (
    Advantages,
    Algorithm,
    Array,
    Imitation,
    LossInputs,
    StepOutcomes,
    token_mean,
)


@dataclass(frozen=True, kw_only=True)
class Sft(Algorithm):
    """loss = -log p(token), averaged over all tokens of the player's answers."""

    player: str = "random_consistent"  # the scripted player to imitate, see wordle_rl.game.players

    @property
    def imitates(self) -> Imitation | None:
        return Imitation(player=self.player)

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        return Advantages(per_turn=[np.ones(len(returns)) for returns in outcomes.returns])

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return token_mean(lengths)

    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        return -terms.advantages * terms.logprobs, {}
