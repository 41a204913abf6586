"""GRPO done right: without its two biases (Liu et al. 2025, arXiv 2503.20783).

GRPO divides by the length of each answer, which makes long wrong answers cheap. It also divides by
the group's deviation, which favours questions that are nearly always or nearly never solved. Dr.
GRPO divides by a constant, the token budget of a rollout, and not by the deviation.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from wordle_rl.algorithms.base import Array
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.runs.instantiate import Within


@dataclass(frozen=True, kw_only=True)
class DrGrpo(PolicyGradient):
    """loss = 1/(R budget) sum over R rollouts and their tokens of -min(r A, clip(r) A).
    A = reward - mean of the rewards compared, budget = sampling.max_tokens x answers of a rollout
    at most.

    A game may have as many answers as it has turns left, plus rules.max_retries where the rules
    have retries. A single guess is one answer. The paper's rollouts have one answer each, so its
    budget is the most tokens of an answer.
    """

    # Tokens, in place of the budget.
    normalizer: Annotated[float, Within(1, 1_000_000)] | None = None
    budget: int = 0  # filled in by the builder

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return np.full(len(lengths), 1.0 / (len(lengths) * (self.normalizer or self.budget)))
