"""Supervised fine-tuning: cross-entropy on the guesses of a scripted player.

The rollouts are the player's games, each seen as the conversation a policy would have had. A player
who never errs never shows how to go on after an error; slips put some into its games.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from wordle_rl.algorithms.base import (
    Algorithm,
    Floats,
    Judgement,
    Outcomes,
    Rows,
    Terms,
    token_mean,
)
from wordle_rl.reasoning import LENGTHS


@dataclass(frozen=True, kw_only=True)
class Sft(Algorithm):
    """loss = -log p(token), averaged over all tokens of the player's answers.

    With targets=distribution, log p is its mean over what the player might have answered given the
    tokens before.
    """

    player: str = "random_consistent"  # the scripted player to imitate, see wordle_rl.players
    targets: Literal["sampled", "distribution"] = "sampled"  # learn the guess, or all it might be
    slips: float = 0.0  # share of turns in which a mistake, never learnt, takes the guess's place
    reasoning: Literal["none", "notes", "brief", "full"] = "none"  # the thought before each guess

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.targets not in ("sampled", "distribution"):
            raise ValueError(
                f"algorithm.targets must be sampled or distribution, not {self.targets!r}"
            )
        if self.reasoning not in LENGTHS:
            raise ValueError(
                f"algorithm.reasoning must be one of {', '.join(LENGTHS)}, not {self.reasoning!r}"
            )
        if not 0.0 <= self.slips <= 0.9:
            raise ValueError(f"algorithm.slips must be 0..0.9, not {self.slips}")

    @property
    def imitates(self) -> str | None:
        return self.player

    @property
    def mistakes(self) -> float:
        return self.slips

    @property
    def imitates_choices(self) -> bool:
        return self.targets == "distribution"

    @property
    def thoughts(self) -> str:
        return self.reasoning

    def judge(self, outcomes: Outcomes) -> Judgement:
        return Judgement(advantages=[np.ones(len(returns)) for returns in outcomes.returns])

    def weights(self, rows: Rows) -> Floats:
        return token_mean(rows)

    def loss(self, xp: Any, terms: Terms) -> tuple[Any, dict[str, Any]]:
        return -terms.logprobs, {}
