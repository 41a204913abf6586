"""Group reward-Decoupled Normalization Policy Optimization (Liu et al. 2026, arXiv 2601.05242)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from wordle_rl.algorithms.base import Advantages, Needs, StepOutcomes
from wordle_rl.algorithms.credit import deviation
from wordle_rl.algorithms.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Gdpo(PolicyGradient):
    """As grpo, with A = sum of w (part - mean) / std over the parts of the reward, each compared by
    itself, divided by the deviation of these sums over the step. Their mean, which the paper takes
    off, is 0. w: the part's weight in reward=, 1 for corrections.
    """

    kl: Literal["loss"] = "loss"
    scale: Literal["std"] = "std"

    @cached_property
    def needs(self) -> Needs:
        return replace(super().needs, parts=True)

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        sums = [np.zeros(len(returns)) for returns in outcomes.returns]
        for name in dict.fromkeys(name for parts in outcomes.parts for name in parts):
            weight = outcomes.weights.get(name, 1.0)
            values = [
                parts.get(name, 0.0 * a) for parts, a in zip(outcomes.parts, sums, strict=True)
            ]
            advantages = super().advantages(replace(outcomes, returns=values)).per_turn
            sums = [a + weight * b for a, b in zip(sums, advantages, strict=True)]
        # By game, all turns of a rollout have its advantage, which counts once.
        unit = deviation(np.concatenate([a if outcomes.by_turn else a[:1] for a in sums]))
        return Advantages(per_turn=[a / (unit or 1.0) for a in sums])
