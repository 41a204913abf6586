"""Splits a batch into pieces that fit into memory; units that belong together stay together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wordle_rl.records import Batch


def micro_batches(batch: Batch, max_tokens: int) -> list[NDArray[np.int64]]:
    """Row numbers of each piece, longest rows first, at most max_tokens padded tokens each.

    A unit longer than that is a piece of its own. Weights were given on the whole batch, so how
    it is split does not change the summed loss.
    """
    units = batch.units if batch.units is not None else np.arange(len(batch.lengths))
    members: dict[int, list[int]] = {}
    for row, unit in enumerate(units.tolist()):
        members.setdefault(unit, []).append(row)
    ordered = sorted(members.values(), key=lambda rows: -int(batch.lengths[rows].max()))
    pieces: list[list[int]] = []
    width = 0
    for rows in ordered:
        if pieces and (len(pieces[-1]) + len(rows)) * width <= max_tokens:
            pieces[-1].extend(rows)
        else:
            pieces.append(list(rows))
            width = int(batch.lengths[rows].max())
    return [np.array(piece) for piece in pieces]
