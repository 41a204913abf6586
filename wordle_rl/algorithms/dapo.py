"""Decoupled Clip and Dynamic Sampling Policy Optimization (Yu et al. 2025, arXiv 2503.14476)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from wordle_rl.algorithms.base import Advantages, Array, StepOutcomes, token_mean
from wordle_rl.algorithms.credit import Scale
from wordle_rl.algorithms.policy_gradient import ClipHigh, PolicyGradient
from wordle_rl.runs.instantiate import Within


@dataclass(frozen=True, kw_only=True)
class Dapo(PolicyGradient):
    """GRPO with four changes. Its advantages are GRPO's, with either credit.

    - The ratio may rise further than it may fall (clip-higher).
    - All tokens of a batch have equal weights.
    - Groups without spread at any turn are replaced by new ones (dynamic sampling).
    - Long answers are punished or filtered.

    overlong=punish takes reward from the turn of a long answer. The loss of reward is 0 up to
    limit - buffer tokens and grows linearly to 1 at limit (eq. 13), where
        limit = sampling.max_tokens
        buffer = overlong_buffer * limit
    overlong=filter sets the advantage of answers that the limit cut off to 0 (section 3.4).
    """

    clip_high: ClipHigh = 0.28
    scale: Scale = "std"
    overlong: Literal["punish", "filter", "none"] = "punish"
    # Share of the limit in which the penalty grows to 1.
    overlong_buffer: Annotated[float, Within(0, 1, "(]")] = 0.2
    # Rounds in which groups without spread are replaced; 0 keeps them.
    resample: Annotated[int, Within(0, 1000)] = 10

    def penalties(
        self, lengths: Array, max_tokens: int, divergence: Array | None = None
    ) -> dict[str, Array]:
        parts = super().penalties(lengths, max_tokens, divergence)
        if self.overlong == "punish":
            buffer = self.overlong_buffer * max_tokens
            excess = (lengths.astype(np.float64) - (max_tokens - buffer)) / buffer
            parts["overlong"] = -excess.clip(0.0, 1.0)
        return parts

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        advantages = super().advantages(outcomes)
        if self.overlong != "filter":
            return advantages
        pairs = zip(advantages.per_turn, outcomes.complete, strict=True)
        return Advantages(per_turn=[np.where(whole, a, 0.0) for a, whole in pairs])

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return token_mean(lengths)
