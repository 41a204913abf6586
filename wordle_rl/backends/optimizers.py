"""torch optimisers as the settings name them; a policy steps all of them together."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from wordle_rl.optim import Optim


def build_optimizers(model: nn.Module, optim: Optim) -> list[Any]:
    """The optimisers of a model's trainable parameters, each parameter in exactly one."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    matrices = _layer_matrices(model) if optim.name == "muon" else set()
    rest = [p for p in trainable if p not in matrices]
    optimizers: list[Any] = []
    if rest:
        optimizers.append(
            torch.optim.AdamW(
                rest, lr=optim.lr, betas=(optim.beta1, optim.beta2), weight_decay=optim.weight_decay
            )
        )
    if matrices:
        optimizers.append(
            torch.optim.Muon(
                [p for p in trainable if p in matrices],
                lr=optim.lr,
                momentum=optim.momentum,
                weight_decay=optim.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    return optimizers


def set_learning_rate(optimizers: list[Any], optim: Optim, lr: float) -> None:
    """Let the next steps be of size lr, and of its share for what Muon leaves to AdamW."""
    for optimizer in optimizers:
        rest = optim.name == "muon" and isinstance(optimizer, torch.optim.AdamW)
        for group in optimizer.param_groups:
            group["lr"] = lr * optim.rest_lr_ratio if rest else lr


def _layer_matrices(model: nn.Module) -> set[nn.Parameter]:
    """Trainable matrices other than the embedding and the head, which are tables of rows."""
    inner: Any = model
    tables = {inner.get_input_embeddings().weight, inner.get_output_embeddings().weight}
    return {p for p in model.parameters() if p.requires_grad and p.ndim == 2} - tables
