"""Settings of the optimiser, and the learning rate as a function of the step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from wordle_rl.runs.instantiate import MOST, Share, Within

LearningRate = Annotated[float, Within(0, 10)]
_Decay = Annotated[float, Within(0, 1, "[)")]


@dataclass(frozen=True, kw_only=True)
class Optim:
    """AdamW or Muon with gradient clipping. The schedule is a pure function of the step.

    Muon (kellerjordan.github.io/posts/muon) trains the matrices of the layers and moves them in
    orthogonal steps, AdamW the embeddings and vectors. Muon's steps have the size of AdamW's (arXiv
    2502.16982), so lr means the same to both.
    """

    name: Literal["adamw", "muon"] = "adamw"
    lr: LearningRate = 1e-5
    schedule: Literal["constant", "cosine"] = "cosine"
    # Steps in which the learning rate rises from 0.
    warmup_steps: Annotated[int, Within(0, MOST)] = 0
    final_lr_ratio: Share = 0.1  # cosine: share of lr left at the last step
    weight_decay: Annotated[float, Within(0, 1000)] = 0.0
    beta1: _Decay = 0.9
    beta2: _Decay = 0.999
    momentum: _Decay = 0.95  # Muon only
    rest_lr_ratio: Share = 1.0  # Muon: share of lr for what AdamW trains
    clip_grad_norm: Annotated[float, Within(0, MOST)] = 1.0  # largest norm, 0 for no clipping

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


def muon_size(shape: Sequence[int]) -> float:
    """Size of Muon's step, which makes it as large as AdamW's. Source: arXiv 2502.16982."""
    return 0.2 * max(shape) ** 0.5
