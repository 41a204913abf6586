"""Proximal Policy Optimization with a value head (Schulman et al. 2017, arXiv 1707.06347)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from wordle_rl.algorithms.base import (
    Advantages,
    Array,
    LossInputs,
    Needs,
    Passes,
    StepOutcomes,
    Weight,
    token_mean,
)
from wordle_rl.algorithms.credit import Scale, deviation, turn_gae
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.runs.instantiate import Share


@dataclass(frozen=True, kw_only=True)
class Ppo(PolicyGradient):
    """loss = -min(r A, clip(r) A) + value_weight (V - target)^2 / 2 - entropy H, over all tokens.

    A turn is one action. A = sum of (discount lam)^d delta over this turn (d = 0) and the turns
    after it, with delta = reward + discount V(next turn) - V(turn). target = A + V(turn).
    V is a linear function of the model's last hidden state. V(turn) is its value before the
    answer's first token. The value loss is taken at every token of the answer. It measures V in
    standard deviations of the step's targets, so that value_weight and value_clip mean the same for
    rewards of any size. scale=std gives advantages mean 0 and deviation 1 over the step. Groups
    are not compared, so one rollout per group is enough.
    """

    epochs: Passes = 4
    minibatches: Passes = 4
    scale: Scale = "std"
    lam: Share = 0.95  # 0 trusts the value of the next turn, 1 the rewards
    value_weight: Weight = 0.5
    value_clip: Weight = 0.2  # how far a value may move in one batch of rollouts; 0: any distance

    @cached_property
    def needs(self) -> Needs:
        # The value loss has a gradient everywhere.
        return replace(super().needs, values=True, scores=True, zero_advantages=True)

    def check(self, num_generations: int) -> None:
        pass

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        assert outcomes.values is not None
        discount = outcomes.discount
        estimates = [
            turn_gae(returns, values, discount=discount, lam=self.lam)
            for returns, values in zip(outcomes.returns, outcomes.values, strict=True)
        ]
        targets = [a + v for a, v in zip(estimates, outcomes.values, strict=True)]
        unit = deviation(np.concatenate(targets))
        if self.scale == "std":
            estimates = _standardise(estimates)
        return Advantages(per_turn=estimates, targets=targets, target_scale=unit or 1.0)

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return token_mean(lengths)

    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        loss, metrics = super().loss(xp, terms)
        metrics["value_loss"] = clipped_value_loss(
            xp,
            terms.values,
            terms.old_values,
            terms.targets,
            clip=self.value_clip,
            scale=terms.target_scale,
        )
        return loss + self.value_weight * terms.trained * metrics["value_loss"], metrics


def clipped_value_loss(
    xp: Any, values: Any, old_values: Any, targets: Any, *, clip: float, scale: float
) -> Any:
    """Half the squared error of a value, or of the value clipped near the old one if that is worse.

    clip: how far a value may move from the old one, in units of scale; 0 for any distance.
    Source: PPO's reference code (github.com/openai/baselines, ppo2).
    """
    errors = ((values - targets) / scale) ** 2
    if clip > 0.0:
        clipped_values = old_values + xp.clip(values - old_values, -clip * scale, clip * scale)
        errors = xp.maximum(errors, ((clipped_values - targets) / scale) ** 2)
    return 0.5 * errors


def _standardise(estimates: list[Array]) -> list[Array]:
    """Estimates with mean 0 and deviation 1 over all of them; zeros if all are equal."""
    numbers = np.concatenate(estimates)
    unit = deviation(numbers)
    return [(a - numbers.mean()) / unit if unit else np.zeros(len(a)) for a in estimates]
