"""GRPO done right: without its two biases (Liu et al. 2025, arXiv 2503.20783).

GRPO divides by the length of each answer, which makes long wrong answers cheap, and by the group's
deviation, which favours questions that are nearly always or nearly never solved. Dr. GRPO divides
by a constant instead, and not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wordle_rl.algorithms.base import Floats, Rows, in_range
from wordle_rl.algorithms.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class DrGrpo(PolicyGradient):
    """loss = sum over a sequence's tokens of -min(r A, clip(r) A) / normalizer, averaged over
    sequences; A = reward - mean of the group."""

    normalizer: float  # published: the most tokens that an answer may have

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range("normalizer", self.normalizer, 1, 1_000_000)  # tokens

    def weights(self, rows: Rows) -> Floats:
        return np.full(len(rows.lengths), 1.0 / (len(rows.lengths) * self.normalizer))
