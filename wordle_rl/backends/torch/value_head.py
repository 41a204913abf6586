"""A value head: one number for each hidden state of a trunk."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from wordle_rl.backends.torch.weights import read_weights
from wordle_rl.runs.checkpoints import CheckpointError

FILE = "value_head.safetensors"  # beside the model's own files, whose loaders pass over it


class ValueHead(nn.Module):
    """A linear function in float32, 0 everywhere at the start."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Values [...] of hidden states [..., H]."""
        with torch.autocast(hidden.device.type, enabled=False):
            return hidden.float() @ self.weight + self.bias

    def save(self, folder: Path) -> None:
        save_file(self.state_dict(), folder / FILE)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. Raises CheckpointError unless it fits."""
        path = folder / FILE
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: it was written without a value head")
        saved = read_weights(path)
        if {k: v.shape for k, v in saved.items()} != {
            k: v.shape for k, v in self.state_dict().items()
        }:
            raise CheckpointError(f"{path} belongs to another model")
        self.load_state_dict(saved)
