"""Clip-Cov: no gradient for some tokens that cost much entropy (Cui et al. 2025, 2505.22617)."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from wordle_rl.algorithms.base import Array, token_mean
from wordle_rl.algorithms.credit import Scale
from wordle_rl.algorithms.policy_gradient import ClipHigh, ClipLow, PolicyGradient
from wordle_rl.runs.instantiate import Within

Covariance = Annotated[float, Within(-1000, 1000)]


@dataclass(frozen=True, kw_only=True)
class ClipCov(PolicyGradient):
    """loss = -min(r A, clip(r) A), averaged over all tokens, and 0 for some whose covariance
    (log p - mean log p) (A - mean A) is in [cov_low, cov_high]; A as in GRPO, with either credit.

    Means are over all tokens drawn in the step. Entropy falls by the covariance, which few tokens
    carry. Of them, share x (tokens of the step) are drawn without replacement, at least one, as in
    the authors' code, or all if there are fewer. Source: eqs. 10 to 12 of arXiv 2505.22617. There p
    is the policy before each update; here it is the one that drew, and all updates of a step hold
    back the same tokens.
    """

    clip_low: ClipLow = 1.0
    clip_high: ClipHigh = 1.0
    scale: Scale = "std"
    cov_low: Covariance = 1.0
    cov_high: Covariance = 5.0
    # Of the step's tokens, which get no gradient.
    share: Annotated[float, Within(0, 1, "(]")] = 2e-4

    def learns(self, logprobs: Array, advantages: Array, draw: np.random.Generator) -> Array | None:
        covariance = (logprobs - logprobs.mean()) * (advantages - advantages.mean())
        candidates = np.flatnonzero((covariance >= self.cov_low) & (covariance <= self.cov_high))
        count = min(max(int(self.share * len(logprobs)), 1), len(candidates))
        learnt = np.ones(len(logprobs), bool)
        learnt[draw.choice(candidates, count, replace=False) if count else []] = False
        return learnt

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return token_mean(lengths)
