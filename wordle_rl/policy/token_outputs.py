"""What one forward pass says of each trained token: log-probability, entropy, value and more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.batch import LOGITS_BYTES, Batch, FloatArray
from wordle_rl.policy.grammar import Choices, Options

_BYTES = 4  # of a float32 logit
RowIndex = NDArray[np.int64]  # [R] numbers of some rows of a batch


class TokenOutputs(NamedTuple):
    """What one forward pass says of each token. The backend's arrays [R, T], 0 if not trained."""

    logprobs: Any  # natural log
    entropy: Any = None  # of the distribution that the token was drawn from
    values: Any = None  # of the value head, before it was drawn
    allowed: Any = None  # log-probability that a draw without the grammar is one of its choices


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The tokens to score at P places, which are numbered row by row.

    place, ids, shares: [E] number of a place, a token, and how much it counts in the place's score.
    """

    place: NDArray[np.int64]
    ids: NDArray[np.int64]
    shares: FloatArray
    choices: list[Choices] | None = None  # of each place, what its token was drawn from

    @classmethod
    def of(cls, batch: Batch, rows: RowIndex, trained: NDArray[np.bool_]) -> Wanted:
        """What is wanted at the trained places [R, T] of some rows."""
        if batch.distributions is None:
            ids = batch.ids[rows, : trained.shape[1]][trained]
            ones, choices = np.ones(len(ids), np.float32), None
            if batch.choices is not None:
                choices = [some for row in rows for some in batch.choices[row]]
            return cls(place=np.arange(len(ids)), ids=ids, shares=ones, choices=choices)
        number = trained.cumsum().reshape(trained.shape) - 1
        targets = [batch.distributions[row] for row in rows]
        return cls(
            place=np.concatenate([number[row, t.places] for row, t in enumerate(targets)]),
            ids=np.concatenate([t.ids for t in targets]),
            shares=np.concatenate([t.probabilities for t in targets]),
        )

    def part(self, start: int, count: int) -> Part:
        """What is wanted at some of the places, from number `start` on."""
        inside = (self.place >= start) & (self.place < start + count)
        options, columns = None, self.ids[inside]
        if self.choices is not None:
            options = Options.of(self.choices[start : start + count])
            columns = np.searchsorted(options.tokens, columns)
        return Part(self.place[inside] - start, columns, self.shares[inside], options)


class Part(NamedTuple):
    """The tokens to score at some places, by their columns in the logits [P, U]."""

    place: NDArray[np.int64]
    columns: NDArray[np.int64]
    shares: FloatArray
    options: Options | None  # that the logits are of. None: the whole vocabulary


class LanguageModel(ABC):
    """Trunk and head of a model. Arrays are the backend's own, unless they are typed."""

    xp: Any  # the array namespace, torch or mlx.core
    vocabulary: int  # logits of each token
    computes_once = False  # whether its layers have one row for each distinct beginning
    value_head: Any = None  # values [P] of hidden states [P, H]

    @abstractmethod
    def to_array(self, values: NDArray) -> Any: ...

    @abstractmethod
    def read_states(self, ids: NDArray[np.int64], trained: NDArray[np.bool_]) -> Any:
        """Hidden states [P, H] before the trained tokens of sequences [N, T], row by row."""

    @abstractmethod
    def compute_logits(self, hidden: Any, options: Options | None = None) -> Any:
        """float32 logits [..., V] of hidden states [..., H].

        options: of n hidden states [n, H]; the logits are [n, U] then.
        """

    @abstractmethod
    def add_at(self, size: int, place: Any, values: Any) -> Any:
        """float32 zeros [size] to which values are added at their places."""

    @abstractmethod
    def recompute_head(self, function: Callable[..., Any], states: Any, start: int) -> Any:
        """function(states, start), which the backward pass computes again to save memory."""

    def states_at_once(self, wanted: Wanted) -> int:
        """States whose logits may exist at once."""
        most = self.vocabulary if wanted.choices is None else sum(map(len, wanted.choices))
        return max(LOGITS_BYTES // (_BYTES * min(most, self.vocabulary)), 1)

    def forward(
        self,
        batch: Batch,
        rows: RowIndex,
        *,
        temperature: float,
        entropy: bool = False,
        values: bool = False,
        allowed: bool = False,
    ) -> TokenOutputs:
        """One forward pass over some rows of a batch. All but logprobs is optional."""
        width = int(batch.lengths[rows].max())
        trained = batch.trained[rows, :width]
        wanted = Wanted.of(batch, rows, trained)
        states = self.read_states(batch.ids[rows, :width], trained)
        logprobs, *entropies = self.score_states(states, wanted, temperature, entropy)
        if allowed:
            anything = replace(wanted, choices=None)
            free, *_ = self.score_states(states, anything, temperature, entropy=False)
        places = self.to_array(np.flatnonzero(trained))

        def place(found: Any) -> Any:
            return self.add_at(trained.size, places, found).reshape(trained.shape)

        return TokenOutputs(
            logprobs=place(logprobs),
            entropy=place(entropies[0]) if entropy else None,
            values=place(self.value_head(states)) if values else None,
            allowed=place(free - logprobs) if allowed else None,
        )

    def score_states(
        self, states: Any, wanted: Wanted, temperature: float, entropy: bool
    ) -> tuple[Any, ...]:
        """Log-probabilities [P], and perhaps entropies [P], of what is wanted after states [P, H].

        The head runs only there, and on some of them at once.
        """

        def score(states: Any, start: int) -> tuple[Any, ...]:
            return self.score_part(states, wanted.part(start, len(states)), temperature, entropy)

        most = self.states_at_once(wanted)
        if len(states) <= most:
            return score(states, 0)
        # The backward pass computes the logits of each part again. With a large vocabulary, keeping
        # them would need more memory than the model.
        parts = [
            self.recompute_head(score, states[start : start + most], start)
            for start in range(0, len(states), most)
        ]
        return tuple(self.xp.concatenate(list(found)) for found in zip(*parts, strict=True))

    def score_part(
        self, states: Any, part: Part, temperature: float, entropy: bool
    ) -> tuple[Any, ...]:
        """As score_states, of states [P, H] whose logits may exist at once."""
        xp = self.xp
        place, columns, shares = map(self.to_array, (part.place, part.columns, part.shares))
        logits = self.compute_logits(states, part.options) / temperature
        normalizer = xp.logsumexp(logits, -1)
        # Of several tokens at one place, their mean.
        chosen = self.add_at(len(states), place, logits[place, columns] * shares)
        if not entropy:
            return (chosen - normalizer,)
        expected = (xp.exp(logits - normalizer[:, None]) * logits).sum(-1)
        return chosen - normalizer, normalizer - expected
