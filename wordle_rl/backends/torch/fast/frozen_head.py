"""Log-probabilities under a head that is not trained, with their gradient, in one pass.

The gradient of one log-probability with respect to its hidden state is a vector of the state's own
size. So it is computed at once, while the logits exist, and they are never kept or computed again.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from wordle_rl.policy.grammar import Options

_ROWS = 256  # more hidden states at once are no faster


class Wanted(Protocol):
    """Says which logits of trained places matter."""

    def find(
        self, logits: torch.Tensor, start: int, options: Options | None = None
    ) -> torch.Tensor:
        """The wanted logit [P] of each trained place.

        logits: [P, V] of the trained places from number `start` on, or [P, U] of the options.
        """
        ...

    def subtract(self, table: torch.Tensor, start: int) -> None:
        """Subtract the wanted probabilities from a table [P, V] of the same places."""
        ...


def compute_logprobs(
    states: torch.Tensor, weight: torch.Tensor, temperature: float, wanted: Wanted, most: int
) -> torch.Tensor:
    """Log-probabilities [P] of what is wanted after hidden states [P, H].

    weight: [V, H] of the head, which gets no gradient. Logits are rounded as the weights are. most:
    states whose logits may exist at once.
    """
    logprobs: Any = _LogProbs.apply(states, weight, temperature, wanted, min(most, _ROWS))
    return logprobs


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        temperature: float,
        wanted: Wanted,
        rows: int,
    ) -> torch.Tensor:
        logprobs = torch.empty(len(states), device=states.device)
        slopes = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        for start in range(0, len(states), rows):
            part = slice(start, start + rows)
            logits = F.linear(states[part].to(weight.dtype), weight).float()
            if temperature != 1.0:
                logits /= temperature
            # A row stays in the cache inside softmax. Its greatest entry gives the normaliser.
            table = logits.softmax(-1)
            normalizer = logits.amax(-1) - table.amax(-1).log()
            logprobs[part] = wanted.find(logits, start) - normalizer
            if slopes is not None:
                wanted.subtract(table, start)
                slopes[part] = (table.to(weight.dtype) @ weight).to(states.dtype)
        if slopes is not None:
            ctx.save_for_backward(slopes)
            ctx.temperature = temperature
        return logprobs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        [slopes] = ctx.saved_tensors
        factors = (grads[0] / -ctx.temperature)[:, None].to(slopes.dtype)
        return slopes * factors, None, None, None, None
