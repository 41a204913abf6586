"""Parts of a batch as MLX arrays, and the loss of one.

Shapes can be rounded up, so that few are compiled. What fills them up is trained nowhere, and its
rows are units of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Algorithm, LossInputs
from wordle_rl.backends.mlx.causal_lm import TokenOutputs
from wordle_rl.policy.batch import Batch, FloatArray, Targets

Arrays = dict[str, mx.array]
_ALWAYS = ("trained", "advantages", "weights", "sampler_logprobs")
_SCORED = ("ids", "places", "choices", "shares")
_GIVEN = ("old_logprobs", "ref_logprobs", "old_values", "targets")  # where the algorithm has them


class Piece:
    """Some rows of a batch."""

    def __init__(self, batch: Batch, rows: NDArray[np.int64], size: Callable[[int], int]) -> None:
        """size: what a side of a shape is rounded up to."""
        width = max(int(batch.lengths[rows].max()), 1)  # a piece may be nothing but padding
        self._trained = batch.trained[rows, :width]
        self._count = int(self._trained.sum())
        shape = (size(len(rows)), size(width))

        def filled(values: NDArray, dtype: type) -> NDArray:
            out = np.zeros(shape, dtype)
            out[: len(rows), :width] = values[rows, :width]
            return out

        places = np.ones(size(max(self._count, 1)), np.int32)  # what is too many goes unused
        row, token = np.nonzero(self._trained)
        places[: self._count] = row * shape[1] + token
        units = -1 - np.arange(shape[0])  # those of a batch are 0 or more
        units[: len(rows)] = rows if batch.units is None else batch.units[rows]
        arrays = {
            "ids": filled(batch.ids, np.int32),
            "places": places,
            "count": np.array(self._count),
            "units": units.astype(np.int32),
            # an array, as a number would be compiled in
            "target_scale": np.array(batch.target_scale, np.float32),
        }
        for name in (*_ALWAYS, *_GIVEN):
            given = getattr(batch, name)
            if given is not None:
                arrays[name] = filled(given, np.float32)
        if batch.distributions is not None:
            targets = [batch.distributions[row] for row in rows]
            arrays |= _choices(targets, self._trained, len(places), size)
        self.arrays: Arrays = {name: mx.array(array) for name, array in arrays.items()}

    @property
    def scored(self) -> Arrays:
        """What the log-probabilities and values depend on."""
        return {name: self.arrays[name] for name in _SCORED if name in self.arrays}

    def of(self, found: NDArray) -> FloatArray:
        """Values at the trained places, [rows, T], 0 elsewhere."""
        out = np.zeros(self._trained.shape, np.float32)
        out[self._trained] = found[: self._count]
        return out


def _choices(
    targets: Sequence[Targets],
    trained: NDArray[np.bool_],
    count: int,
    size: Callable[[int], int],
) -> dict[str, NDArray]:
    """Tokens that may stand at each trained place, and their probabilities; [count, K] both."""
    number = trained.cumsum().reshape(trained.shape) - 1
    place = np.concatenate([number[row, t.places] for row, t in enumerate(targets)])
    order = np.argsort(place, kind="stable")
    place = place[order]
    column = np.arange(len(place)) - np.searchsorted(place, place)  # within its place
    shape = (count, size(int(column.max(initial=0)) + 1))
    ids, shares = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    ids[place, column] = np.concatenate([t.ids for t in targets])[order]
    shares[place, column] = np.concatenate([t.probabilities for t in targets])[order]
    return {"choices": ids, "shares": shares}


def weighted_loss(
    algorithm: Algorithm, outputs: TokenOutputs, arrays: Arrays
) -> tuple[mx.array, Arrays]:
    """Weighted sum of the algorithm's loss, and the sums of its metrics over trained tokens."""
    shape, places = arrays["ids"].shape, arrays["places"]
    used = mx.arange(len(places)) < arrays["count"]

    def placed(found: mx.array | None) -> mx.array | None:
        if found is None:
            return None
        everywhere = mx.zeros((shape[0] * shape[1],))
        return everywhere.at[places].add(mx.where(used, found, 0.0)).reshape(shape)

    logprobs = placed(outputs.logprobs)
    assert logprobs is not None
    now = mx.stop_gradient(logprobs)
    trained = arrays["trained"]
    old = arrays.get("old_logprobs", now)
    terms = LossInputs(
        logprobs=logprobs,
        old_logprobs=old,
        sampler_logprobs=arrays["sampler_logprobs"],
        advantages=arrays["advantages"],
        trained=trained,
        units=arrays["units"],
        ref_logprobs=arrays.get("ref_logprobs"),
        entropy=placed(outputs.entropy),
        values=placed(outputs.values),
        old_values=arrays.get("old_values"),
        targets=arrays.get("targets"),
        target_scale=arrays["target_scale"],  # pyright: ignore[reportArgumentType]
    )
    per_token, extra = algorithm.loss(mx, terms)
    drift = mx.abs(now - terms.sampler_logprobs)
    extra |= {"sampler_gap": drift, "surprise": -now}
    parts = {k: mx.sum(mx.stop_gradient(v).astype(mx.float32) * trained) for k, v in extra.items()}
    parts["ratio_gap"] = mx.max(mx.abs(mx.exp(now - old) - 1))
    parts["largest_sampler_gap"] = mx.max(drift)
    return mx.sum(per_token * arrays["weights"]), parts
