"""Supervised fine-tuning: cross-entropy on the guesses of a scripted player.

The rollouts are the player's games, each seen as the conversation a policy would have had. A player
who never errs never shows how to go on after an error; slips put some into its games.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Terms


@dataclass(frozen=True, kw_only=True)
class Sft:
    """loss = -log p(token), averaged over all tokens of the player's answers.

    With targets=distribution, log p is its mean over what the player might have answered given the
    tokens before.
    """

    player: str = "random_consistent"  # the scripted player to imitate, see wordle_rl.players
    targets: Literal["sampled", "distribution"] = "sampled"  # learn the guess, or all it might be
    slips: float = 0.0  # share of turns in which a mistake, never learnt, takes the guess's place
    updates: int = 1
    scale = "none"
    needs_reference = False
    skips_equal_groups = False

    def __post_init__(self) -> None:
        if not 1 <= self.updates <= 100:
            raise ValueError(f"algorithm.updates must be 1..100, not {self.updates}")
        if self.targets not in ("sampled", "distribution"):
            raise ValueError(
                f"algorithm.targets must be sampled or distribution, not {self.targets!r}"
            )
        if not 0.0 <= self.slips <= 0.9:
            raise ValueError(f"algorithm.slips must be 0..0.9, not {self.slips}")

    def check(self, num_generations: int) -> None:
        if num_generations < 1:
            raise ValueError("rollout.num_generations must be 1 or more")

    def advantages(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ones_like(rewards)

    def weights(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.full(len(lengths), 1.0 / max(int(lengths.sum()), 1))

    def loss(self, xp: Any, terms: Terms) -> tuple[Any, dict[str, Any]]:
        return -terms.logprobs, {}
