"""Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Terms
from wordle_rl.algorithms.losses import clipped_surrogate, k3

Scale = Literal["std", "none"]


def group_advantages(rewards: NDArray[np.float64], scale: Scale) -> NDArray[np.float64]:
    """Advantage of each rollout against its own group.

    rewards: [G, N] summed reward per rollout, unitless.
    Returns [G, N]; all zeros, exactly, in a group whose rewards are equal.
    Raises ValueError when N < 2. Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2;
    scale="none" is Dr. GRPO (arXiv 2503.20783).
    """
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(
            "rollout.num_generations must be 2 or more: a rollout is judged against its group"
        )
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    spread = np.ptp(rewards, axis=1, keepdims=True)
    centred = np.where(spread == 0.0, 0.0, centred)
    if scale == "none":
        return centred
    deviation = rewards.std(axis=1, keepdims=True, ddof=1)
    return centred / np.where(spread == 0.0, 1.0, deviation)


@dataclass(frozen=True, kw_only=True)
class Grpo:
    """loss = -min(r A, clip(r, 1 - low, 1 + high) A) + beta k3, averaged over the tokens of each
    rollout, then over rollouts; A = (reward - mean of the group) / std of the group."""

    clip_low: float = 0.2  # how far the probability ratio may fall below 1
    clip_high: float = 0.2  # how far it may rise above 1
    beta: float = 0.04  # weight of the KL divergence from the reference
    updates: int = 1  # optimiser steps on one batch of rollouts
    scale: Scale = "std"  # std divides by the group's deviation, none leaves the difference
    player: None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.clip_low <= 1.0:
            raise ValueError(
                f"algorithm.clip_low must be above 0 and at most 1, not {self.clip_low}"
            )
        if self.clip_high <= 0.0:
            raise ValueError(f"algorithm.clip_high must be above 0, not {self.clip_high}")
        if self.beta < 0.0:
            raise ValueError(f"algorithm.beta must be 0 or more, not {self.beta}")
        if not 1 <= self.updates <= 100:
            raise ValueError(f"algorithm.updates must be 1..100, not {self.updates}")
        if self.scale not in ("std", "none"):
            raise ValueError(f"algorithm.scale must be std or none, not {self.scale!r}")

    @property
    def needs_reference(self) -> bool:
        return self.beta > 0.0

    @property
    def skips_equal_groups(self) -> bool:
        return self.beta == 0.0

    def check(self, num_generations: int) -> None:
        group_advantages(np.zeros((1, num_generations)), self.scale)

    def advantages(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        return group_advantages(rewards, self.scale)

    def weights(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        return 1.0 / (len(lengths) * np.maximum(lengths, 1))

    def loss(self, xp: Any, terms: Terms) -> tuple[Any, dict[str, Any]]:
        loss, ratio, clipped = clipped_surrogate(
            xp, terms.logprobs, terms.old_logprobs, terms.advantages,
            low=self.clip_low, high=self.clip_high,
        )  # fmt: skip
        metrics = {"ratio": ratio, "clipped": clipped}
        if self.beta > 0.0:
            divergence = k3(xp, terms.logprobs, terms.ref_logprobs)
            loss = loss + self.beta * divergence
            metrics["kl"] = divergence
        return loss, metrics
