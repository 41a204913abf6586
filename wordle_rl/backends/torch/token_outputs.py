"""What one forward pass says of each trained token: log-probability, entropy and value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.recompute import recompute
from wordle_rl.backends.torch.value_head import ValueHead
from wordle_rl.policy.batch import LOGITS_BYTES, Batch, Targets
from wordle_rl.policy.grammar import Choices, Options

_BYTES = 4  # of a float32 logit


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
    if batch.distributions is None:
        wanted: WantedTokens | WantedMeans = WantedTokens(ids[:, 1:][trained[:, 1:]])
    else:
        wanted = WantedMeans(trained, [batch.distributions[row] for row in rows])

    def place(found: torch.Tensor) -> torch.Tensor:
        return torch.zeros(ids.shape, device=ids.device).masked_scatter(trained, found)

    choices = None
    if batch.choices is not None:
        choices = [some for row in rows for some in batch.choices[row]]
    logprobs, *entropies = read_states(
        lm, states, wanted, temperature=temperature, entropy=entropy, choices=choices
    )
    return TokenOutputs(
        logprobs=place(logprobs),
        entropy=place(entropies[0]) if entropy else None,
        values=None if value_head is None else place(value_head(states)),
    )


def read_states(
    lm: CausalLM,
    states: torch.Tensor,
    wanted: WantedTokens | WantedMeans,
    *,
    temperature: float,
    entropy: bool = False,
    choices: Sequence[Choices] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Log-probabilities [P], and perhaps entropies [P], of trained places.

    states: [P, H] before each of them. choices: [P] what each token was drawn from.
    """

    def read(states: torch.Tensor, start: int) -> tuple[torch.Tensor, ...]:
        here = None if choices is None else Options.of(choices[start : start + len(states)])
        logits = lm.compute_logits(states, here) / temperature
        chosen = wanted.find(logits, start, here)
        normalizer = torch.logsumexp(logits, dim=-1)
        logprobs = chosen - normalizer
        if not entropy:
            return (logprobs,)
        return logprobs, normalizer - ((logits - normalizer[:, None]).exp() * logits).sum(-1)

    return _read_in_parts(read, states, lm.vocabulary)


def _read_in_parts(
    read: Callable[[torch.Tensor, int], tuple[torch.Tensor, ...]],
    states: torch.Tensor,
    vocabulary: int,
) -> tuple[torch.Tensor, ...]:
    """What `read` finds in states [P, H], whose logits take at most LOGITS_BYTES at once.

    read: takes some states and the number of the first one.
    """
    most = max(LOGITS_BYTES // (_BYTES * vocabulary), 1)
    if len(states) <= most:
        return read(states, 0)
    # The backward pass computes the logits of each part again. With a large vocabulary, keeping
    # them would need more memory than the model.
    parts = [
        recompute(read, states[start : start + most], start)
        for start in range(0, len(states), most)
    ]
    return tuple(torch.cat(found) for found in zip(*parts, strict=True))


class WantedTokens:
    """One token at each trained place. ids: [all trained places]."""

    def __init__(self, ids: torch.Tensor) -> None:
        self._ids = ids

    def find(
        self, logits: torch.Tensor, start: int, options: Options | None = None
    ) -> torch.Tensor:
        """The logits [P] wanted at trained places, the first of which is number `start`."""
        ids = self._ids[start : start + len(logits)]
        places = ids
        if options is not None:
            places = torch.searchsorted(torch.from_numpy(options.tokens).to(ids.device), ids)
        return logits.gather(1, places[:, None])[:, 0]


class WantedMeans:
    """The mean logit over the target tokens of each trained place."""

    def __init__(self, trained: torch.Tensor, targets: Sequence[Targets]) -> None:
        """trained: [rows, T]. targets: one per row."""
        # Trained places are numbered through all rows, one row after the other.
        number = trained.flatten().cumsum(0).view(trained.shape) - 1
        parts = [number[row, torch.from_numpy(t.places)] for row, t in enumerate(targets)]
        self._number = torch.cat(parts)
        ids = np.concatenate([t.ids for t in targets])
        shares = np.concatenate([t.probabilities for t in targets])
        self._ids = torch.from_numpy(ids).to(trained.device)
        self._shares = torch.from_numpy(shares).to(trained.device)

    def find(
        self, logits: torch.Tensor, start: int, options: Options | None = None
    ) -> torch.Tensor:
        """As WantedTokens.find."""
        assert options is None, "what is imitated is scored over the whole vocabulary"
        place = self._number - start
        inside = (place >= 0) & (place < len(logits))
        place, ids, shares = place[inside], self._ids[inside], self._shares[inside]
        return logits.new_zeros(len(logits)).index_add(0, place, logits[place, ids] * shares)
