"""Supervised fine-tuning on every guess a scripted player might have made (Hinton et al. 2015).

A player that never errs never shows how to recover from an error; slips put some into its games.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wordle_rl.algorithms.base import Imitation, in_range
from wordle_rl.algorithms.sft import Sft


@dataclass(frozen=True, kw_only=True)
class Distill(Sft):
    """As sft, with log p averaged over all answers that the player might have given.

    The average is over the answers that begin with the tokens so far. targets=sampled uses only the
    player's own guess, as in sft.
    """

    targets: Literal["sampled", "distribution"] = "distribution"
    slips: float = 0.3  # share of turns in which a mistake, never learnt, replaces the guess

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
