"""Expert iteration: play, keep the best win of each group, imitate it (Anthony et al. 2017, arXiv
1705.08439; for language models ReST-EM, arXiv 2312.06585).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wordle_rl.algorithms.base import Advantages, Algorithm, Array, LossInputs, Needs, StepOutcomes


@dataclass(frozen=True, kw_only=True)
class ExpertIteration(Algorithm):
    """loss = -log p(token), averaged over all tokens of the kept rollouts.

    Each group keeps the win with the highest reward from its first turn on, the first of equals. A
    group without a win teaches nothing.
    """

    @cached_property
    def needs(self) -> Needs:
        return Needs(zero_advantages=False, whole_games=True)

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        """1 for the kept rollouts, else 0."""
        totals = np.where(outcomes.won, outcomes.totals, -np.inf)
        best = [members[np.argmax(totals[members])] for members in outcomes.members()]
        kept = np.zeros(len(totals))
        kept[best] = outcomes.won[best]
        return Advantages(per_turn=outcomes.spread(kept))

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return used / max(int(lengths[used].sum()), 1)

    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        return -terms.logprobs * terms.advantages, {}
