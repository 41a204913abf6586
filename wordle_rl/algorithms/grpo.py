"""Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.algorithms.credit import Scale
from wordle_rl.algorithms.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Grpo(PolicyGradient):
    """loss = -min(r A, clip(r, 1 - low, 1 + high) A) + beta KL, averaged over the tokens of each
    sequence, then over sequences; A = (reward - mean of the group) / std of the group.
    """

    beta: float = 0.04
    scale: Scale = "std"
