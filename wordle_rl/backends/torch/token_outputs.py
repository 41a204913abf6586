"""What one pass of a model says of each trained token: log-probability, entropy, value."""

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
    """All are [rows, T], and 0 where no token is trained."""

    logprobs: torch.Tensor  # natural log
    entropy: torch.Tensor | None  # of the distribution that the token was drawn from
    values: torch.Tensor | None  # before it was drawn


def token_outputs(
    lm: CausalLM,
    batch: Batch,
    rows: np.ndarray,
    *,
    temperature: float,
    entropy: bool = False,
    value_head: ValueHead | None = None,
) -> TokenOutputs:
    """One pass over some rows of a batch; entropy and values only if asked for."""
    width = max(int(batch.lengths[rows].max()), 1)  # a piece may be nothing but padding
    ids = torch.from_numpy(batch.ids[rows, :width]).to(lm.device)
    trained = torch.from_numpy(batch.trained[rows, :width]).to(lm.device)
    hidden = lm.hidden(ids)
    # The token at place t is predicted at place t - 1; the head runs only where one is trained.
    states = hidden[:, :-1][trained[:, 1:]]
    logits = lm.logits(states) / temperature
    if batch.distributions is None:
        chosen = logits.gather(1, ids[:, 1:][trained[:, 1:]][:, None])[:, 0]
    else:
        chosen = _expected(logits, trained, [batch.distributions[row] for row in rows])
    normalizer = torch.logsumexp(logits, dim=-1)

    def placed(found: torch.Tensor) -> torch.Tensor:
        return torch.zeros(ids.shape, device=ids.device).masked_scatter(trained, found)

    of_all = None
    if entropy:
        of_all = placed(normalizer - ((logits - normalizer[:, None]).exp() * logits).sum(-1))
    return TokenOutputs(
        logprobs=placed(chosen - normalizer),
        entropy=of_all,
        values=None if value_head is None else placed(value_head(states)),
    )


def _expected(
    logits: torch.Tensor, trained: torch.Tensor, targets: Sequence[Targets]
) -> torch.Tensor:
    """Mean logit [P] under the targets of each trained place; logits [P, V], trained [rows, T]."""
    # The trained places of all rows, one after the other, are the rows of logits.
    number = trained.flatten().cumsum(0).view(trained.shape) - 1
    parts = [number[row, torch.from_numpy(t.places)] for row, t in enumerate(targets)]
    place = torch.cat(parts).to(logits.device)
    ids = torch.from_numpy(np.concatenate([t.ids for t in targets])).to(logits.device)
    shares = torch.from_numpy(np.concatenate([t.probabilities for t in targets]))
    values = logits[place, ids] * shares.to(logits.device)
    return logits.new_zeros(len(logits)).index_add(0, place, values)
