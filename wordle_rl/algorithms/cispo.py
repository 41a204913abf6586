"""Clipped importance-sampling policy optimization (MiniMax-M1, 2025, arXiv 2506.13585)."""

from dataclasses import dataclass
from typing import Any

from wordle_rl.algorithms.base import Array, LossInputs, constant, token_mean
from wordle_rl.algorithms.credit import Scale
from wordle_rl.algorithms.policy_gradient import ClipHigh, ClipLow, PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Cispo(PolicyGradient):
    """loss = -constant(clip(r, 1 - clip_low, 1 + clip_high)) A log p, averaged over all tokens;
    A as in GRPO, with either credit.

    The clipped ratio r is a weight without a gradient, so every token keeps its gradient, where
    PPO's clip takes it from some. Source: eqs. 4 and 5 of the paper. It has no lower limit, which
    is clip_low=1, no KL, and tuned clip_high to a value that it does not give.
    """

    clip_low: ClipLow = 1.0
    clip_high: ClipHigh = 4.0
    scale: Scale = "std"

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return token_mean(lengths)

    def surrogate(self, xp: Any, terms: LossInputs) -> tuple[Any, Any, Any]:
        ratio = constant(xp, xp.exp(self.log_ratio(xp, terms)))
        weight = xp.clip(ratio, 1.0 - self.clip_low, 1.0 + self.clip_high)
        return -weight * terms.advantages * terms.logprobs, ratio, weight != ratio
