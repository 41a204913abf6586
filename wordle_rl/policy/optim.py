"""Settings of the optimiser, and the learning rate as a function of the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wordle_rl.runs.instantiate import MOST, check_range

MOST_LEARNING_RATE = 10.0


@dataclass(frozen=True, kw_only=True)
class Optim:
    """AdamW or Muon with gradient clipping. The schedule is a pure function of the step."""

    name: Literal["adamw", "muon"] = "adamw"
    lr: float = 1e-5
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup_steps: int = 0  # steps in which the learning rate rises from 0
    final_lr_ratio: float = 0.1  # cosine: share of lr left at the last step
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    momentum: float = 0.95  # Muon only
    rest_lr_ratio: float = 1.0  # Muon: share of lr for what AdamW trains
    clip_grad_norm: float = 1.0  # largest gradient norm, 0 for no clipping

    def __post_init__(self) -> None:
        if self.name not in ("adamw", "muon"):
            raise ValueError(f"optim.name must be adamw or muon, not {self.name!r}")
        check_range("optim.lr", self.lr, 0, MOST_LEARNING_RATE)
        if self.schedule not in ("constant", "cosine"):
            raise ValueError(f"optim.schedule must be constant or cosine, not {self.schedule!r}")
        check_range("optim.warmup_steps", self.warmup_steps, 0, MOST)
        for name in ("final_lr_ratio", "rest_lr_ratio"):
            check_range(f"optim.{name}", getattr(self, name), 0, 1)
        check_range("optim.weight_decay", self.weight_decay, 0, 1000)
        for name in ("beta1", "beta2", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"optim.{name} must be 0 to below 1, not {getattr(self, name)}")
        check_range("optim.clip_grad_norm", self.clip_grad_norm, 0, MOST)

    @property
    def rest_share(self) -> float:
        """Share of the learning rate for weights that are no matrices of a layer."""
        return self.rest_lr_ratio if self.name == "muon" else 1.0

    def lr_at(self, step: int, steps: int) -> float:
        """Learning rate of a step 0..steps-1."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return self.lr
        progress = (step - self.warmup_steps) / max(steps - 1 - self.warmup_steps, 1)
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
        return self.lr * (self.final_lr_ratio + (1.0 - self.final_lr_ratio) * cosine)


@dataclass(frozen=True, kw_only=True)
class AdamW(Optim):
    """optim=adamw: AdamW trains every weight; Muon's settings have no effect."""

    name: Literal["adamw"] = "adamw"


@dataclass(frozen=True, kw_only=True)
class Muon(Optim):
    """optim=muon: Muon trains the matrices of the layers, AdamW the embeddings and vectors.

    Muon (kellerjordan.github.io/posts/muon) moves a matrix in orthogonal steps. They have the size
    of AdamW's steps (arXiv 2502.16982), so lr means the same to both.
    """

    name: Literal["muon"] = "muon"


def muon_size(shape: Sequence[int]) -> float:
    """Size of Muon's step, which makes it as large as AdamW's. Source: arXiv 2502.16982."""
    return 0.2 * max(shape) ** 0.5
