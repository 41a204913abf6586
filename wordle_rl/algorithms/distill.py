"""Supervised fine-tuning on every guess a scripted player might have made (Hinton et al. 2015).

A player that never errs never shows how to recover from an error; slips put some into its games.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from wordle_rl.algorithms.base import Imitation
from wordle_rl.algorithms.sft import Sft
from wordle_rl.runs.instantiate import Share, Within


@dataclass(frozen=True, kw_only=True)
class Distill(Sft):
    """As sft, with log p averaged over all answers that the player might have given.

    The average is over the answers that begin with the tokens so far. targets=sampled uses only the
    player's own guess, as in sft. With on_policy games are the model's own (Ross et al. 2011,
    DAgger), so it learns what to do after its own mistakes. The rest of a guess that is wrong
    already weighs a tenth: otherwise it would be most of the lesson, and it has nothing to do with
    the clues.
    """

    targets: Literal["sampled", "distribution"] = "distribution"
    # Share of turns in which a mistake, never learnt, replaces the guess.
    slips: Annotated[float, Within(0, 0.9)] = 0.3
    # Share of the groups that the model plays; the player says what it might have answered.
    on_policy: bool | Share = False

    def __post_init__(self) -> None:
        if self.on_policy and self.targets == "sampled":
            raise ValueError(
                "algorithm.on_policy needs algorithm.targets=distribution: the player did not make "
                "the model's guesses"
            )
        if self.on_policy == 1 and self.slips:
            raise ValueError(
                "algorithm.on_policy=true needs algorithm.slips=0: the model makes its own "
                "mistakes. With a share below 1 the player's games have them"
            )

    @property
    def imitates(self) -> Imitation | None:
        return Imitation(
            player=self.player,
            slips=self.slips,
            every_guess=self.targets == "distribution",
            own_share=float(self.on_policy),
        )
