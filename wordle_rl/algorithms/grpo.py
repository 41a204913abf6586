"""Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300)."""

from dataclasses import dataclass

from wordle_rl.algorithms.base import Weight
from wordle_rl.algorithms.credit import Scale
from wordle_rl.algorithms.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Grpo(PolicyGradient):
    """loss = -min(r A, clip(r, 1 - low, 1 + high) A) + beta KL, averaged over the tokens of each
    rollout, then over rollouts; A = (reward - mean) / std, both of the rewards compared.

    Credit by game is section 4.1.2 of the paper. Credit by turn is neither of its two kinds of
    supervision: its process supervision (4.1.3) scales rewards over all steps of a group.
    """

    beta: Weight = 0.04
    scale: Scale = "std"
