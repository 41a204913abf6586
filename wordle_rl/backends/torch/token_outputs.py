"""What one forward pass says of each trained token: log-probability, entropy and value."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from wordle_rl.backends.loading import VALUE_HEAD, check_fit, read_weights
from wordle_rl.backends.policy import Rows, TokenOutputs, Wanted
from wordle_rl.backends.torch.causal_lm import CausalLM, recompute
from wordle_rl.backends.torch.fast.frozen_head import compute_logprobs
from wordle_rl.policy.batch import LOGITS_BYTES, Batch


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
        saved = read_weights(folder / VALUE_HEAD)
        check_fit(folder / VALUE_HEAD, saved, self.state_dict())
        self.load_state_dict(saved)


def compute_token_outputs(
    lm: CausalLM,
    batch: Batch,
    rows: Rows,
    *,
    temperature: float,
    entropy: bool = False,
    value_head: ValueHead | None = None,
) -> TokenOutputs:
    """One forward pass over some rows of a batch. entropy and values are optional."""
    width = int(batch.lengths[rows].max())
    marks = batch.trained[rows, :width]
    wanted = Wanted.of(batch, rows, marks)
    ids = torch.from_numpy(batch.ids[rows, :width]).to(lm.device)
    trained = torch.from_numpy(marks).to(lm.device)
    # Place t - 1 predicts the token at place t. The head runs only where a token is trained.
    states = lm.compute_states(ids, trained[:, 1:])

    def place(found: torch.Tensor) -> torch.Tensor:
        return torch.zeros(ids.shape, device=ids.device).masked_scatter(trained, found)

    logprobs, *entropies = _read_states(lm, states, wanted, temperature, entropy)
    return TokenOutputs(
        logprobs=place(logprobs),
        entropy=place(entropies[0]) if entropy else None,
        values=None if value_head is None else place(value_head(states)),
    )


def _read_states(
    lm: CausalLM, states: torch.Tensor, wanted: Wanted, temperature: float, entropy: bool
) -> tuple[torch.Tensor, ...]:
    """Log-probabilities [P], and perhaps entropies [P], of trained places.

    states: [P, H] before each of them. Their logits take at most LOGITS_BYTES at once.
    """
    most = max(LOGITS_BYTES // (4 * lm.vocabulary), 1)  # states, whose logits are float32

    def read(states: torch.Tensor, start: int) -> tuple[torch.Tensor, ...]:
        part = wanted.part(start, len(states))
        logits = lm.compute_logits(states, part.options) / temperature
        normalizer = torch.logsumexp(logits, dim=-1)
        arrays = (part.place, part.columns, part.shares)
        place, columns, shares = (torch.from_numpy(array).to(logits.device) for array in arrays)
        # Of several tokens at one place, their mean.
        chosen = torch.zeros_like(normalizer).index_add(0, place, logits[place, columns] * shares)
        logprobs = chosen - normalizer
        if not entropy:
            return (logprobs,)
        return logprobs, normalizer - ((logits - normalizer[:, None]).exp() * logits).sum(-1)

    if not entropy and lm.frozen_head is not None:
        return (compute_logprobs(lm, states, wanted, temperature, most),)
    if len(states) <= most:
        return read(states, 0)
    # The backward pass computes the logits of each part again. With a large vocabulary, keeping
    # them would need more memory than the model.
    parts = [
        recompute(read, states[start : start + most], start)
        for start in range(0, len(states), most)
    ]
    return tuple(torch.cat(found) for found in zip(*parts, strict=True))
