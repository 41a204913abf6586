"""Micro-batches as MLX arrays, and their loss."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Algorithm, LossInputs
from wordle_rl.backends.mlx.causal_lm import TokenOutputs
from wordle_rl.policy.batch import Batch, FloatArray, Targets
from wordle_rl.policy.grammar import Options
from wordle_rl.policy.weighted_loss import weigh_loss

Arrays = dict[str, mx.array]
_ALWAYS = ("trained", "advantages", "weights", "sampler_logprobs")
_SCORED = ("ids", "places", "choices", "shares", "tokens", "closed")
_OPTIONAL = ("old_logprobs", "ref_logprobs", "old_values", "targets")


class MicroBatch:
    """Some rows of a batch as arrays."""

    def __init__(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        width = max(int(batch.lengths[rows].max()), 1)  # rows may hold nothing but padding
        self._trained = batch.trained[rows, :width]
        self._count = int(self._trained.sum())
        places = np.ones(max(self._count, 1), np.int32)  # without trained tokens 1 is not used
        row, token = np.nonzero(self._trained)
        places[: self._count] = row * width + token
        units = rows if batch.units is None else batch.units[rows]
        arrays = {
            "ids": batch.ids[rows, :width].astype(np.int32),
            "places": places,
            "count": np.array(self._count),
            "units": units.astype(np.int32),
            "target_scale": np.array(batch.target_scale, np.float32),
        }
        for name in (*_ALWAYS, *_OPTIONAL):
            values = getattr(batch, name)
            if values is not None:
                arrays[name] = values[rows, :width].astype(np.float32)
        if batch.distributions is not None:
            targets = [batch.distributions[row] for row in rows]
            arrays |= _arrange_choices(targets, self._trained, len(places))
        if batch.choices is not None:
            allowed = [some for row in rows for some in batch.choices[row]]
            unused = [np.zeros(1, np.int64)] * (len(places) - self._count)
            options = Options.of([*allowed, *unused])
            arrays["tokens"], arrays["closed"] = options.tokens.astype(np.int32), options.closed
            drawn = np.searchsorted(options.tokens, arrays["ids"].ravel()[places])
            arrays["choices"] = np.minimum(drawn, len(options.tokens) - 1)[:, None]
        self.arrays: Arrays = {name: mx.array(array) for name, array in arrays.items()}

    @property
    def scored(self) -> Arrays:
        """The arrays on which log-probabilities and values depend."""
        return {name: self.arrays[name] for name in _SCORED if name in self.arrays}

    def place(self, found: NDArray) -> FloatArray:
        """Values of the trained tokens at their places [rows, T], 0 elsewhere."""
        out = np.zeros(self._trained.shape, np.float32)
        out[self._trained] = found[: self._count]
        return out


def _arrange_choices(
    targets: Sequence[Targets], trained: NDArray[np.bool_], count: int
) -> dict[str, NDArray]:
    """The target tokens of each trained place, and their probabilities. Both are [count, K]."""
    number = trained.cumsum().reshape(trained.shape) - 1
    place = np.concatenate([number[row, t.places] for row, t in enumerate(targets)])
    order = np.argsort(place, kind="stable")
    place = place[order]
    column = np.arange(len(place)) - np.searchsorted(place, place)  # within its place
    shape = (count, int(column.max(initial=0)) + 1)
    ids, shares = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    ids[place, column] = np.concatenate([t.ids for t in targets])[order]
    shares[place, column] = np.concatenate([t.probabilities for t in targets])[order]
    return {"choices": ids, "shares": shares}


def compute_loss(
    algorithm: Algorithm, outputs: TokenOutputs, arrays: Arrays
) -> tuple[mx.array, Arrays]:
    """The loss of a micro-batch, and the parts of UpdateMetrics."""
    shape, places = arrays["ids"].shape, arrays["places"]
    used = mx.arange(len(places)) < arrays["count"]

    def place(found: mx.array | None) -> mx.array | None:
        if found is None:
            return None
        everywhere = mx.zeros((shape[0] * shape[1],))
        return everywhere.at[places].add(mx.where(used, found, 0.0)).reshape(shape)

    logprobs = place(outputs.logprobs)
    assert logprobs is not None
    inputs = LossInputs(
        logprobs=logprobs,
        old_logprobs=arrays.get("old_logprobs", mx.stop_gradient(logprobs)),
        sampler_logprobs=arrays["sampler_logprobs"],
        advantages=arrays["advantages"],
        trained=arrays["trained"],
        units=arrays["units"],
        ref_logprobs=arrays.get("ref_logprobs"),
        entropy=place(outputs.entropy),
        values=place(outputs.values),
        old_values=arrays.get("old_values"),
        targets=arrays.get("targets"),
        target_scale=arrays["target_scale"],  # pyright: ignore[reportArgumentType]
    )
    return weigh_loss(mx, algorithm, inputs, arrays["weights"])
