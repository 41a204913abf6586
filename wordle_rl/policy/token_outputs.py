"""What one forward pass says of each trained token, such as its log-probability, and the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Algorithm, LossInputs, Needs, constant
from wordle_rl.policy.batch import LOGITS_BYTES, Batch, FloatArray
from wordle_rl.policy.grammar import Choices, Options

_BYTES = 4  # of a float32 logit
_READ = (  # by a loss, of a batch
    "old_logprobs",
    "sampler_logprobs",
    "advantages",
    "ref_logprobs",
    "old_values",
    "targets",
)
# Metrics of an update that are the largest value over tokens, micro-batches, processes and updates.
# All others are means.
LARGEST = ("ratio_gap", "largest_sampler_gap")
FORCED_TOO = ("semantic",)  # metrics whose sum also has the tokens that a grammar forced


class TokenOutputs(NamedTuple):
    """What one forward pass says of each token. The backend's arrays [R, T], 0 if not trained."""

    logprobs: Any  # natural log
    entropy: Any = None  # of the distribution that the token was drawn from
    values: Any = None  # of the value head, before it was drawn
    allowed: Any = None  # log-probability that a draw without the grammar is one of its choices


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The tokens to score at P positions, which are numbered row by row.

    place, ids, shares: [E] number of a position, a token, and its share in the position's score.
    """

    place: NDArray[np.int64]
    ids: NDArray[np.int64]
    shares: FloatArray
    choices: list[Choices] | None = None  # of each position, what its token was drawn from

    @classmethod
    def of(cls, batch: Batch) -> Wanted:
        """What is wanted at the trained positions [R, T] of a micro-batch."""
        targets, trained = batch.distributions, batch.trained
        if targets is None:
            ids = batch.ids[trained]
            ones, choices = np.ones(len(ids), np.float32), None
            if batch.choices is not None:
                choices = [tokens for row in batch.choices for tokens in row]
            return cls(place=np.arange(len(ids)), ids=ids, shares=ones, choices=choices)
        number = trained.cumsum().reshape(trained.shape) - 1
        return cls(
            place=np.concatenate([number[row, t.places] for row, t in enumerate(targets)]),
            ids=np.concatenate([t.ids for t in targets]),
            shares=np.concatenate([t.probabilities for t in targets]),
        )

    def take(self, places: list[int]) -> Wanted:
        """What is wanted at some of the positions, whose numbers rise."""
        inside = np.isin(self.place, places)
        return Wanted(
            place=np.searchsorted(places, self.place[inside]),
            ids=self.ids[inside],
            shares=self.shares[inside],
            choices=self.choices and [self.choices[index] for index in places],
        )

    def part(self, start: int, count: int) -> Part:
        """What is wanted at some of the positions, from number `start` on."""
        inside = (self.place >= start) & (self.place < start + count)
        options, columns = None, self.ids[inside]
        if self.choices is not None:
            options = Options.of(self.choices[start : start + count])
            columns = np.searchsorted(options.tokens, columns)
        return Part(self.place[inside] - start, columns, self.shares[inside], options)


class Part(NamedTuple):
    """The tokens to score at some positions, by their columns in the logits [P, U]."""

    place: NDArray[np.int64]
    columns: NDArray[np.int64]
    shares: FloatArray
    options: Options | None  # that the logits are of. None: the whole vocabulary


class LanguageModel(ABC):
    """Trunk and head of a model. Arrays are the backend's own, unless they are typed."""

    xp: Any  # the array namespace, torch or mlx.core
    without_gradients: Any = nullcontext  # makes a block that only reads
    vocabulary: int  # logits of each token
    computes_once = False  # whether its layers have one row for each distinct beginning
    value_head: Any = None  # values [P] of hidden states [P, H]

    @abstractmethod
    def to_array(self, values: NDArray) -> Any: ...

    @abstractmethod
    def to_numpy(self, array: Any) -> FloatArray: ...

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
        """float32 zeros [size] to which values are added at their positions."""

    @abstractmethod
    def recompute_head(self, function: Callable[..., Any], states: Any, start: int) -> Any:
        """function(states, start), which the backward pass computes again to save memory."""

    def states_at_once(self, wanted: Wanted) -> int:
        """States whose logits may exist at once."""
        count = self.vocabulary if wanted.choices is None else sum(map(len, wanted.choices))
        return max(LOGITS_BYTES // (_BYTES * min(count, self.vocabulary)), 1)

    def compute_loss(
        self, batch: Batch, algorithm: Algorithm, temperature: float
    ) -> tuple[Any, dict[str, Any]]:
        """The loss of a micro-batch, and its part of an update's metrics.

        A metric is a sum over the drawn tokens, or their largest value if it is in LARGEST.
        """
        outputs = self.forward(batch, temperature, algorithm.needs)
        xp, inputs = self.xp, self._loss_inputs(batch, outputs)
        per_token, metrics = algorithm.loss(xp, inputs)
        logprobs = constant(xp, outputs.logprobs)
        gap = xp.abs(logprobs - inputs.sampler_logprobs)
        metrics |= {"sampler_gap": gap, "surprise": -logprobs}
        trained = self.to_array(batch.trained)
        masks = {name: trained if name in FORCED_TOO else inputs.trained for name in metrics}
        sums = {
            name: xp.sum(xp.where(masks[name], constant(xp, values), 0.0))
            for name, values in metrics.items()
        }
        loss = xp.sum(per_token * self.to_array(batch.weights))
        return loss, {
            **sums,
            "loss": constant(xp, loss),
            "ratio_gap": xp.max(xp.abs(xp.exp(logprobs - inputs.old_logprobs) - 1)),
            "largest_sampler_gap": xp.max(gap),
        }

    def _loss_inputs(self, batch: Batch, outputs: TokenOutputs) -> LossInputs:
        """What a loss reads of a micro-batch."""
        fields = {name: getattr(batch, name) for name in _READ}
        arrays = {name: self.to_array(value) for name, value in fields.items() if value is not None}
        defaults = {"old_logprobs": constant(self.xp, outputs.logprobs)}  # of the only update
        units = np.arange(len(batch.ids)) if batch.units is None else batch.units
        return LossInputs(
            **outputs._asdict(),
            **defaults | arrays,
            trained=self.to_array(batch.drawn),
            units=self.to_array(units),
            target_scale=batch.target_scale,
        )

    def forward(self, batch: Batch, temperature: float, needs: Needs) -> TokenOutputs:
        """One forward pass over a micro-batch.

        needs: whether it gives entropy, values and allowed, too.
        """
        trained, wanted = batch.trained, Wanted.of(batch)
        states = self.read_states(batch.ids, trained)
        logprobs, *entropies = self.score_states(states, wanted, temperature, needs.entropy)
        if needs.allowed:
            request = replace(wanted, choices=None)
            raw_logprobs, *_ = self.score_states(states, request, temperature, entropy=False)
        positions = self.to_array(np.flatnonzero(trained))

        def scatter(values: Any) -> Any:
            return self.add_at(trained.size, positions, values).reshape(trained.shape)

        return TokenOutputs(
            logprobs=scatter(logprobs),
            entropy=scatter(entropies[0]) if needs.entropy else None,
            values=scatter(self.value_head(states)) if needs.values else None,
            allowed=scatter(raw_logprobs - logprobs) if needs.allowed else None,
        )

    def score_states(
        self, states: Any, wanted: Wanted, temperature: float, entropy: bool
    ) -> tuple[Any, ...]:
        """Log-probabilities [P], and perhaps entropies [P], of what is wanted after states [P, H].

        The head runs only there, and on some of them at once.
        """

        def score(states: Any, start: int) -> tuple[Any, ...]:
            return self.score_part(states, wanted.part(start, len(states)), temperature, entropy)

        limit = self.states_at_once(wanted)
        if len(states) <= limit:
            return score(states, 0)
        # The backward pass computes the logits of each part again. With a large vocabulary, keeping
        # them would need more memory than the model.
        parts = [
            self.recompute_head(score, states[start : start + limit], start)
            for start in range(0, len(states), limit)
        ]
        return tuple(self.xp.concatenate(list(values)) for values in zip(*parts, strict=True))

    def score_part(
        self, states: Any, part: Part, temperature: float, entropy: bool
    ) -> tuple[Any, ...]:
        """As score_states, of states [P, H] whose logits may exist at once."""
        xp = self.xp
        rows, columns, shares = map(self.to_array, (part.place, part.columns, part.shares))
        logits = self.compute_logits(states, part.options) / temperature
        normalizer = xp.logsumexp(logits, -1)
        # Of several tokens at one position, their mean.
        scores = self.add_at(len(states), rows, logits[rows, columns] * shares)
        if not entropy:
            return (scores - normalizer,)
        expectation = (xp.exp(logits - normalizer[:, None]) * logits).sum(-1)
        return scores - normalizer, normalizer - expectation
