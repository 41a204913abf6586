"""Pads conversations to the arrays that a policy learns from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wordle_rl.policy.batch import Batch
from wordle_rl.rollouts.talk import Talk

Values = Mapping[str, Sequence[Sequence[float] | np.ndarray]]


def pad(talks: Sequence[Talk], pad_id: int, values: Values | None = None) -> Batch:
    """Pad conversations and their per-token values to a Batch.

    values: for each field of the Batch a list of [T], one per conversation. Advantages and weights
    are 0 without it.
    """
    lengths = np.array([len(talk.ids) for talk in talks], np.int64)
    shape = (len(talks), int(lengths.max(initial=0)))
    ids = np.full(shape, pad_id, np.int64)
    trained = np.zeros(shape, bool)
    given = {"sampler_logprobs": [talk.logprobs for talk in talks], **(values or {})}
    floats = {name: np.zeros(shape, np.float32) for name in ("advantages", "weights", *given)}
    for row, talk in enumerate(talks):
        end = lengths[row]
        ids[row, :end], trained[row, :end] = talk.ids, talk.trained
        for name, rows in given.items():
            floats[name][row, :end] = rows[row]
    return Batch(ids=ids, lengths=lengths, trained=trained, **floats)  # pyright: ignore[reportArgumentType]
