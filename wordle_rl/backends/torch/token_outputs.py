"""What one forward pass says of each trained token: log-probability, entropy and value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.value_head import ValueHead
from wordle_rl.policy.batch import Batch, Targets


@dataclass(frozen=True, kw_only=True)
class TokenOutputs:
    """All tensors are [rows, T], and 0 where no token is trained."""

    logprobs: torch.Tensor  # natural log
    entropy: torch.Tensor | None  # of the distribution that the token was drawn from
    values: torch.Tensor | None  # before it was drawn


def compute_token_outputs(
    lm: CausalLM,
    batch: Batch,
    rows: np.ndarray,
    *,
    temperature: float,
    entropy: bool = False,
    value_head: ValueHead | None = None,
) -> TokenOutputs:
    """One forward pass over some rows of a batch. entropy and values are optional."""
    width = max(int(batch.lengths[rows].max()), 1)  # rows may hold nothing but padding
    ids = torch.from_numpy(batch.ids[rows, :width]).to(lm.device)
    trained = torch.from_numpy(batch.trained[rows, :width]).to(lm.device)
    # Place t - 1 predicts the token at place t. The head runs only where a token is trained.
    states = lm.compute_states(ids, trained[:, 1:])
    logits = lm.compute_logits(states) / temperature
    if batch.distributions is None:
        chosen = logits.gather(1, ids[:, 1:][trained[:, 1:]][:, None])[:, 0]
    else:
        chosen = _compute_mean_logits(logits, trained, [batch.distributions[row] for row in rows])
    normalizer = torch.logsumexp(logits, dim=-1)

    def place(found: torch.Tensor) -> torch.Tensor:
        return torch.zeros(ids.shape, device=ids.device).masked_scatter(trained, found)

    entropies = None
    if entropy:
        entropies = place(normalizer - ((logits - normalizer[:, None]).exp() * logits).sum(-1))
    return TokenOutputs(
        logprobs=place(chosen - normalizer),
        entropy=entropies,
        values=None if value_head is None else place(value_head(states)),
    )


def _compute_mean_logits(
    logits: torch.Tensor, trained: torch.Tensor, targets: Sequence[Targets]
) -> torch.Tensor:
    """The mean logit [P] over the target tokens of each trained place.

    logits: [P, V], one row per trained place. trained: [rows, T]. targets: one per row.
    """
    # logits holds the trained places of all rows, one after the other.
    number = trained.flatten().cumsum(0).view(trained.shape) - 1
    parts = [number[row, torch.from_numpy(t.places)] for row, t in enumerate(targets)]
    place = torch.cat(parts).to(logits.device)
    ids = torch.from_numpy(np.concatenate([t.ids for t in targets])).to(logits.device)
    shares = torch.from_numpy(np.concatenate([t.probabilities for t in targets]))
    values = logits[place, ids] * shares.to(logits.device)
    return logits.new_zeros(len(logits)).index_add(0, place, values)
