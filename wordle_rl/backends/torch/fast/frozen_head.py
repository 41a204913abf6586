"""Log-probabilities under a head that is not trained, with their gradient, in one pass.

The gradient of one log-probability with respect to its hidden state is a vector of the state's own
size. So it is computed at once, while the logits exist, and they are never kept or computed again.
A step of SmolLM2 takes 6 % less time by it.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from wordle_rl.policy.token_outputs import Wanted

_ROWS = 256  # more hidden states at once are no faster


def compute_logprobs(
    lm: Any, states: torch.Tensor, wanted: Wanted, temperature: float, most: int
) -> torch.Tensor:
    """Log-probabilities [P] of what is wanted after hidden states [P, H].

    lm: a CausalLM with a frozen head, which gets no gradient. most: states whose logits may exist
    at once.
    """
    logprobs: Any = _LogProbs.apply(states, lm, wanted, temperature, min(most, _ROWS))
    return logprobs


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: torch.Tensor, lm: Any, wanted: Wanted, temperature: float, rows: int
    ) -> torch.Tensor:
        head = lm.frozen_head
        assert head is not None
        logprobs = torch.empty(len(states), device=states.device)
        slopes = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        for start in range(0, len(states), rows):
            now = slice(start, start + rows)
            part = wanted.part(start, len(states[now]))
            place, columns, shares = map(lm.to_array, (part.place, part.columns, part.shares))
            logits = lm.compute_logits(states[now], part.options)
            if temperature != 1.0:
                logits /= temperature
            greatest = logits.amax(-1, keepdim=True)
            chosen = logits[place, columns] * shares
            # The table is divided by its sums after the product, where it has fewer columns.
            table = logits.sub_(greatest).exp_()
            sums = table.sum(-1, keepdim=True)
            normalizer = (greatest + sums.log())[:, 0]
            logprobs[now] = torch.zeros_like(normalizer).index_add(0, place, chosen) - normalizer
            if slopes is not None:
                removed = shares * -sums[place, 0]
                table.index_put_((place, columns), removed, accumulate=True)
                weight = head
                if part.options is not None:
                    weight = head[torch.from_numpy(part.options.tokens).to(head.device)]
                slopes[now] = ((table.to(weight.dtype) @ weight) / sums).to(states.dtype)
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
