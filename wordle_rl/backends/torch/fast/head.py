"""Log-probabilities and entropies under a head, with their gradient, from one table.

Autograd would keep the logits, the logits over the temperature and their exponentials. Here the
exponentials alone are kept, and the backward pass turns them into the logits' gradient in place.
Under a head that is not trained not even they are: the gradient of one log-probability with respect
to its hidden state is a vector of the state's own size, so it is computed while the table exists,
and only once where the same is wanted after equal states, as where conversations begin alike.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from wordle_rl.policy.token_outputs import Part, Wanted

ROWS = 256  # of a head that is not trained: more hidden states at once are no faster
_TINY = 1e-38  # its logarithm is finite


class _Table(NamedTuple):
    """Exponentials of the logits of P states over the temperature, less the greatest of each."""

    values: torch.Tensor  # [P, U]
    sums: torch.Tensor  # [P, 1] of each state
    rows: torch.Tensor  # [E] state of each token to score
    columns: torch.Tensor  # [E] its column
    shares: torch.Tensor  # [E] how much it counts in its state's score


def _fill_table(
    lm: Any, states: torch.Tensor, part: Part, temperature: float
) -> tuple[_Table, torch.Tensor]:
    """The table of states [P, H], and the log-probabilities [P] of what is wanted."""
    rows, columns, shares = map(lm.to_array, (part.place, part.columns, part.shares))
    values = lm.compute_logits(states, part.options)
    if temperature != 1.0:
        values /= temperature
    values -= values.amax(-1, keepdim=True)
    scores = lm.add_at(len(states), rows, values[rows, columns] * shares)
    sums = values.exp_().sum(-1, keepdim=True)
    return _Table(values, sums, rows, columns, shares), scores - sums.log()[:, 0]


def _open_rows(lm: Any, part: Part, weight: torch.Tensor) -> torch.Tensor:
    """The head's weights [U, H] of the tokens that the part's logits are of."""
    return weight if part.options is None else weight[lm.to_array(part.options.tokens)]


class Scores(torch.autograd.Function):
    """Log-probabilities [P], and perhaps entropies [P], of what is wanted after states [P, H].

    weight: the head_weight of lm, a CausalLM. It gets its gradient, too, if it is trained.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        lm: Any,
        part: Part,
        temperature: float,
        entropy: bool,
    ) -> tuple[torch.Tensor, ...]:
        table, logprobs = _fill_table(lm, states, part, temperature)
        mean = None  # logarithm in the table, of each state
        if entropy:
            mean = _logarithms(table).mul_(table.values).sum(-1, keepdim=True) / table.sums
        ctx.save_for_backward(states, weight, mean, *table)
        ctx.lm, ctx.part, ctx.temperature = lm, part, temperature
        return (logprobs,) if mean is None else (logprobs, (table.sums.log() - mean)[:, 0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        states, weight, mean, *fields = ctx.saved_tensors
        table = _Table(*fields)
        _differentiate(table, mean, *(grad / ctx.temperature for grad in grads))
        gradient = table.values.to(weight.dtype)
        states_grad = (gradient @ _open_rows(ctx.lm, ctx.part, weight)).to(states.dtype)
        weight_grad = None
        if ctx.needs_input_grad[1]:
            weight_grad = gradient.T @ states.to(weight.dtype)
            if ctx.part.options is not None:
                tokens = ctx.lm.to_array(ctx.part.options.tokens)
                weight_grad = torch.zeros_like(weight).index_copy_(0, tokens, weight_grad)
        return states_grad, weight_grad, None, None, None, None


def _differentiate(
    table: _Table,
    mean: torch.Tensor | None,
    by_logprob: torch.Tensor,
    by_entropy: torch.Tensor | None = None,
) -> None:
    """Turn a table's exponentials, in place, into the gradient of the logits.

    mean: [P, 1] logarithm of a state's exponentials, weighed by them, where the entropy counts.
    by_logprob, by_entropy: [P] gradients of what the table gave. With p = softmax(logits) and
    H = -sum p log(p): d log(p_i) / d logit_j = [i = j] - p_j, dH / d logit_j = -p_j (log(p_j) + H).
    """
    factors = by_logprob[:, None]
    if mean is not None and by_entropy is not None:
        factors = _logarithms(table).sub_(mean).mul_(by_entropy[:, None]).add_(factors)
    table.values.mul_(factors / -table.sums)
    terms = table.shares * by_logprob[table.rows]
    table.values.index_put_((table.rows, table.columns), terms, accumulate=True)


def _logarithms(table: _Table) -> torch.Tensor:
    """Logarithms [P, U] of the exponentials, finite where these are 0."""
    return table.values.clamp(min=_TINY).log_()


def _find_repeats(states: torch.Tensor, wanted: Wanted) -> tuple[list[int], list[int]]:
    """The states [U] that differ in state or in what is wanted, and which of them each [P] is."""
    order = np.argsort(wanted.place, kind="stable")
    bounds = np.searchsorted(wanted.place[order], np.arange(len(states) + 1))
    bits = states.detach().contiguous().view(torch.uint8).numpy()
    numbers: dict[tuple[bytes, ...], int] = {}
    indices, inverse = [], []
    for index, (start, stop) in enumerate(pairwise(bounds)):
        span = order[start:stop]
        parts = [bits[index], wanted.ids[span], wanted.shares[span]]
        if wanted.choices is not None:
            parts.append(wanted.choices[index])
        inverse.append(numbers.setdefault(tuple(map(np.ndarray.tobytes, parts)), len(indices)))
        if inverse[-1] == len(indices):
            indices.append(index)
    return indices, inverse


class LogProbs(torch.autograd.Function):
    """Log-probabilities [P] of what is wanted after hidden states [P, H].

    lm: a CausalLM with a head_weight, which gets no gradient. rows: states whose logits exist at
    once.
    """

    @staticmethod
    def forward(
        ctx: Any, states: torch.Tensor, lm: Any, wanted: Wanted, temperature: float, rows: int
    ) -> torch.Tensor:
        indices, inverse = _find_repeats(states, wanted)
        states, wanted = states[indices], wanted.take(indices)
        logprobs = torch.empty(len(states), device=states.device)
        slopes = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        for start in range(0, len(states), rows):
            span = slice(start, start + rows)
            part = wanted.part(start, len(states[span]))
            table, logprobs[span] = _fill_table(lm, states[span], part, temperature)
            if slopes is not None:
                # The table is divided by its sums after the product, where it has fewer columns.
                terms = table.shares * -table.sums[table.rows, 0]
                table.values.index_put_((table.rows, table.columns), terms, accumulate=True)
                weight = _open_rows(lm, part, lm.head_weight)
                product = table.values.to(weight.dtype) @ weight
                slopes[span] = (product / table.sums).to(states.dtype)
        if slopes is not None:
            ctx.save_for_backward(slopes[inverse])
            ctx.temperature = temperature
        return logprobs[inverse]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        [slopes] = ctx.saved_tensors
        factors = (grads[0] / -ctx.temperature)[:, None].to(slopes.dtype)
        return slopes * factors, None, None, None, None
