"""Supervised fine-tuning on all that a scripted player might have guessed (Hinton et al. 2015).

A player who never errs never shows how to go on after an error; slips put some into its games.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wordle_rl.algorithms.base import Imitation, in_range
from wordle_rl.algorithms.sft import Sft


@dataclass(frozen=True, kw_only=True)
class Distill(Sft):
    """As sft; log p is its mean over what the player might have answered given the tokens before.

    With targets=sampled it is that of the player's guess, as in sft.
    """

    targets: Literal["sampled", "distribution"] = "distribution"
    slips: float = 0.3  # share of turns in which a mistake, never learnt, takes the guess's place

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.targets not in ("sampled", "distribution"):
            raise ValueError(
                f"algorithm.targets must be sampled or distribution, not {self.targets!r}"
            )
        in_range("slips", self.slips, 0, 0.9)

    @property
    def imitates(self) -> Imitation | None:
        return Imitation(
            player=self.player, reasoning=self.reasoning, slips=self.slips,
            choices=self.targets == "distribution",
        )  # fmt: skip
