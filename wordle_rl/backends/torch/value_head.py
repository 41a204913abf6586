"""A value head: one number for each hidden state."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from wordle_rl.backends.saved_weights import VALUE_HEAD, check_fit, read_weights


class ValueHead(nn.Module):
    """A linear function in float32 that starts at 0 everywhere."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Values [...] of hidden states [..., H]."""
        with torch.autocast(hidden.device.type, enabled=False):
            return hidden.float() @ self.weight + self.bias

    def save(self, folder: Path) -> None:
        save_file(self.state_dict(), folder / VALUE_HEAD)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. Raises CheckpointError unless it fits this head."""
        file = folder / VALUE_HEAD
        saved = read_weights(file)
        check_fit(file, saved, self.state_dict())
        self.load_state_dict(saved)
