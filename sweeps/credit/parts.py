"""A biased credit by turn, whose cost the study `credit` measures: normalised rewards, summed."""

from dataclasses import dataclass, replace

import numpy as np

from wordle_rl.algorithms.base import Advantages, StepOutcomes
from wordle_rl.algorithms.grpo import Grpo


@dataclass(frozen=True, kw_only=True)
class TurnSums(Grpo):
    """As grpo, but each turn's own reward is compared, and a turn gets the sum from it on.

    Each turn takes off one mean, and a game's guesses decide how many turns it has, so the gradient
    is biased (https://github.com/verl-project/verl/issues/7244). Needs rollout.credit=turn and
    rollout.discount=1.
    """

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        alone = [returns - np.append(returns[1:], 0.0) for returns in outcomes.returns]
        found = super().advantages(replace(outcomes, returns=alone)).per_turn
        return Advantages(per_turn=[each[::-1].cumsum()[::-1] for each in found])
