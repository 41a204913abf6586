"""Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300)."""

from dataclasses import dataclass

from wordle_rl.algorithms.base import Weight
from wordle_rl.algorithms.credit import Scale
from wordle_rl.algorithms.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Grpo(PolicyGradient):
    """loss = -min(r A, clip(r, 1 - low, 1 + high) A) + beta KL, averaged over the tokens of each
    sequence, then over sequences; A = (reward - mean) / std, both of the rewards compared.

    With credit by game the rewards of a group's games are compared, as in section 4.1.2 of the
    paper. With credit by turn they are the rewards from one turn on of the group's games that still
    play there, and a game that is alone has A = 0. That is neither of the paper's two kinds of
    supervision: its process supervision (4.1.3) scales rewards over all steps of a group.
    """

    beta: Weight = 0.04
    scale: Scale = "std"
