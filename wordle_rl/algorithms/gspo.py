"""Group Sequence Policy Optimization (Zheng et al. 2025, arXiv 2507.18071)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wordle_rl.algorithms.base import Advantages, LossInputs, StepOutcomes, constant
from wordle_rl.algorithms.credit import Scale
from wordle_rl.algorithms.policy_gradient import ClipHigh, ClipLow, PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Gspo(PolicyGradient):
    """loss = -min(s A, clip(s, 1 - low, 1 + high) A), averaged over rollouts; A as in GRPO,
    with either credit.

    s = (p(rollout) / p_old(rollout)) ** (1 / its tokens) is one ratio for a whole rollout. A
    rollout is the paper's sequence, even if its form writes several prompts. Each token has its own
    advantage, as in the paper's GSPO-token (eq. 13). Where all tokens of a rollout have the same
    advantage, this is GSPO in value and gradient.
    """

    clip_low: ClipLow = 3e-4
    clip_high: ClipHigh = 4e-4
    scale: Scale = "std"

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        advantages = super().advantages(outcomes)
        return replace(advantages, units=np.arange(len(advantages.per_turn)))

    def log_ratio(self, xp: Any, terms: LossInputs) -> Any:
        shift = terms.logprobs - terms.old_logprobs  # 0 where not trained
        tokens = _of_rollout((terms.trained + 0.0).sum(-1), terms.units)[:, None]
        total = _of_rollout(constant(xp, shift).sum(-1), terms.units)[:, None]
        mean = total / xp.clip(tokens, 1.0, None)
        return mean + shift - constant(xp, shift)  # the mean's value, each token's own gradient


def _of_rollout(sums: Any, units: Any) -> Any:
    """For each sequence, the sum [S] over all sequences of its rollout."""
    if units is None:
        return sums
    return ((units[:, None] == units[None, :]) * sums[None, :]).sum(-1)
