"""Direct Preference Optimization on pairs of own games (Rafailov et al. 2023, arXiv 2305.18290).

Each step makes pairs from its own rollouts, as in online DPO (arXiv 2402.04792). The paper's
reference is the policy at the start of the run.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from wordle_rl.algorithms.base import (
    START,
    Advantages,
    Algorithm,
    Array,
    LossInputs,
    Needs,
    StepOutcomes,
)
from wordle_rl.runs.instantiate import Within

# A margin of less, in nats, is the rounding of a policy that still is its reference.
_ROUNDING = 1e-5


@dataclass(frozen=True, kw_only=True)
class Dpo(Algorithm):
    """loss = -log sigmoid(beta (log p(w) / p_ref(w) - log p(l) / p_ref(l))), averaged over pairs.

    w and l are the better and the worse of two rollouts of one group, by reward from the first turn
    on. The best is paired with the worst, the second best with the second worst, and so on. Equal
    rewards make no pair.
    """

    # How strongly the policy is held to the reference.
    beta: Annotated[float, Within(0, 1000, "(]")] = 0.1
    reference: str = START  # or another model
    pairs: Annotated[int, Within(1, 5000)] = 1  # per group, at most half its rollouts

    @cached_property
    def needs(self) -> Needs:
        return Needs(reference=True, zero_advantages=False)

    def check(self, num_generations: int) -> None:
        if num_generations < 2 * self.pairs:
            raise ValueError(
                f"rollout.num_generations must be {2 * self.pairs} or more for "
                f"algorithm.pairs={self.pairs} of different rollouts, not {num_generations}"
            )

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        """1 for the better of a pair, -1 for the worse, 0 for rollouts without a pair."""
        totals, signs = outcomes.totals, np.zeros(len(outcomes.returns))
        units = np.arange(len(signs))
        for members in outcomes.members():
            order = members[np.argsort(-totals[members], kind="stable")]
            for better, worse in zip(order[: self.pairs], order[::-1], strict=False):
                if totals[better] > totals[worse]:
                    signs[better], signs[worse] = 1.0, -1.0
                    units[worse] = units[better]
        return Advantages(per_turn=outcomes.spread(signs), units=units)

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        """[R] a pair's share, split evenly among its trained tokens: each has the pair's loss."""
        tokens = np.bincount(units, lengths)
        pairs = max(len(np.unique(units[used])), 1)
        return used / (pairs * np.maximum(tokens[units], 1.0))

    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        gains = (terms.advantages * (terms.logprobs - terms.ref_logprobs)).sum(-1)
        of_one_unit = terms.units[:, None] == terms.units[None, :]
        margin = self.beta * (of_one_unit * gains[None, :]).sum(-1)  # [S], equal within a pair
        margins = (terms.trained + 0.0) * margin[:, None]
        metrics = {"margin": margins, "preferred": margins > _ROUNDING}
        # -log sigmoid(x) = log(1 + exp(-x)), without overflow
        return xp.logaddexp(xp.zeros_like(margins), -margins), metrics
