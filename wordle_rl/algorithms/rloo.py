"""REINFORCE Leave-One-Out (Ahmadian et al. 2024, arXiv 2402.14740)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from wordle_rl.algorithms.base import Array
from wordle_rl.algorithms.credit import check_group, has_spread
from wordle_rl.algorithms.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Rloo(PolicyGradient):
    """gradient = -A gradient(log p(sequence)), averaged over sequences;
    A = reward - mean reward of the others in the group.

    A rollout that is alone has no others. The paper needs two, and here it has A = 0.

    With one update per batch, as in the paper, the clipped ratio has exactly this gradient. With
    several, it keeps the policy near the one that played.
    """

    scale: Literal["none"] = "none"

    def compare(self, rewards: Array) -> Array:
        return leave_one_out(rewards)

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return np.full(len(lengths), 1.0 / len(lengths))


def leave_one_out(rewards: Array) -> Array:
    """Advantage of each rollout: its reward less the mean of the others in its group.

    rewards, result, errors: as in credit.group_advantages.
    Source: RLOO (arXiv 2402.14740), section 2.
    """
    check_group(rewards)
    baseline = (rewards.sum(axis=1, keepdims=True) - rewards) / (rewards.shape[1] - 1)
    return np.where(has_spread(rewards), rewards - baseline, 0.0)
