"""Maximum likelihood reinforcement learning (2026, arXiv 2602.02710)."""

from dataclasses import dataclass

import numpy as np

from wordle_rl.algorithms.base import Array
from wordle_rl.algorithms.credit import check_group, has_spread
from wordle_rl.algorithms.rloo import Rloo


@dataclass(frozen=True, kw_only=True)
class MaxRl(Rloo):
    """As rloo, with A = (reward - mean) / mean of the rewards compared.

    So a rare success counts more. The paper has rewards of 0 and 1 and, for large groups, the
    gradient of log p(success). Others should not be negative: a mean of 0 or less gives A = 0.
    """

    def compare(self, rewards: Array) -> Array:
        check_group(rewards)
        mean = rewards.mean(axis=1, keepdims=True)
        learnt = has_spread(rewards) & (mean > 0.0)
        return np.where(learnt, rewards - mean, 0.0) / np.where(learnt, mean, 1.0)
