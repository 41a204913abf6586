"""Losses of one update as the papers write them: by cases, in float64, row by row.

`met` collects the cases that occurred, so that a test can ask for them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The trained tokens [T] of one row. Its first three have a gradient."""

    now: Tensor  # log-probability
    entropy: Tensor
    values: Tensor | None = None
    rollout: int
    ids: Tensor
    advantages: Tensor
    weights: Tensor
    sampler_logprobs: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor | None = None
    old_values: Tensor | None = None
    targets: Tensor | None = None


def policy_gradient_loss(
    algorithm: Any, rows: list[Tokens], one_ratio: bool, met: set[str]
) -> list[Tensor]:
    """Of the rows of one rollout. one_ratio: for the whole rollout (GSPO-token, eq. 13 and 14)."""
    moved = torch.cat([t.now - t.old_logprobs for t in rows])
    of_rollout = moved.mean().detach().exp()
    met |= {"several sequences"} if one_ratio and len(rows) > 1 else set()
    found = []
    for t in rows:
        drift = (t.now - t.now.detach()).exp()  # 1, with the slope of a ratio
        ratio = of_rollout * drift if one_ratio else (t.now - t.old_logprobs).exp()
        above = (t.advantages > 0) & (ratio > 1 + algorithm.clip_high)
        below = (t.advantages < 0) & (ratio < 1 - algorithm.clip_low)
        met |= {name for name, where in (("above", above), ("below", below)) if where.any()}
        ratio = torch.where(above, 1 + algorithm.clip_high, ratio)
        loss = -torch.where(below, 1 - algorithm.clip_low, ratio) * t.advantages
        if algorithm.cap is not None:
            importance = (t.old_logprobs - t.sampler_logprobs).exp()
            capped = importance > algorithm.cap
            met |= {"importance capped"} if capped.any() else set()
            met |= {"importance below 1"} if (importance < 1).any() else set()
            loss = loss * torch.where(capped, algorithm.cap, importance)
        if algorithm.beta and algorithm.kl == "loss":
            ratio_of_reference = (t.ref_logprobs - t.now).exp()
            loss = loss + algorithm.beta * (ratio_of_reference - 1 - ratio_of_reference.log())
        found.append((t.weights * (loss - algorithm.entropy * t.entropy)).sum())
    return found


def value_loss(clip: float, scale: float, t: Tokens, met: set[str]) -> Tensor:
    """Half the squared error. A value that came nearer by more than it may counts as held back."""
    assert t.values is not None and t.old_values is not None
    most = clip * scale
    held = t.old_values + most * (t.values - t.old_values).sign()
    too_far = (t.values - t.old_values).abs() > most
    nearer = (t.values - t.targets).abs() < (held - t.targets).abs()
    met |= {"value held"} if (too_far & nearer).any() else set()
    met |= {"value too far and worse"} if (too_far & ~nearer).any() else set()
    errors = (torch.where(too_far & nearer, held, t.values) - t.targets) / scale
    return (t.weights * errors.square()).sum() / 2


def pairs_loss(beta: float, rows: list[Tokens], units: np.ndarray) -> Tensor:
    """The mean over pairs of -log sigmoid of how much more the better one gained: DPO, eq. 7."""
    margins: dict[int, Tensor] = {}
    for t in rows:
        gained = (t.advantages * (t.now - t.ref_logprobs)).sum()  # the worse one has -1
        unit = int(units[t.rollout])
        margins[unit] = margins.get(unit, torch.zeros(())) + beta * gained
    return (1 + (-torch.stack([*margins.values()])).exp()).log().mean()
