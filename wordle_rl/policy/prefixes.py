"""The distinct beginnings of sequences, each once, and blocks in which attention computes them.

Conversations of a step repeat each other: games share an opening, guesses of one state share its
prompt, and a later prompt begins with the one before it. A hidden state depends on nothing but the
tokens up to its own, so a model needs one row for each distinct beginning, and no padding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_LEAST = 32  # rows of a block; fewer make small products


class Prefixes(NamedTuple):
    """U distinct beginnings of N sequences, sorted, so that each comes before what continues it."""

    tokens: Ints  # [U] the last token of each
    depths: Ints  # [U] its place in the sequence, from 0
    stops: Ints  # [U] the next beginning that is no continuation of this one
    numbers: Ints  # [N, T] which beginning ends at each token of a sequence; behind its end any


class Blocks(NamedTuple):
    """M rows of a model in G blocks of B. The last ones may be padding, which no other row sees.

    The rows of a block see a common path, from the first token to before the block, and each other.
    """

    tokens: Ints  # [M]
    depths: Ints  # [M]
    keys: Ints  # [G, K] rows that a block sees: K - B of its path, then its own
    visible: NDArray[np.bool_]  # [G, B, K] whether a row sees a key


def sort_key(ids: Ints, end: int) -> bytes:
    """What sorts sequences so that those which begin alike stand together."""
    return ids[:end].tobytes()


def count_shared(ids: Ints, ends: Ints) -> Ints:
    """How many tokens [N] each sequence shares with the one before it. ids: [N, T]. ends: [N]."""
    shared = np.zeros(len(ids), np.int64)
    most = np.minimum(ends[1:], ends[:-1])[:, None]
    same = (ids[1:] == ids[:-1]) & (np.arange(ids.shape[1]) < most)
    shared[1:] = np.logical_and.accumulate(same, axis=1).sum(1)
    return shared


def number_prefixes(ids: Ints, ends: Ints) -> Prefixes:
    """The distinct beginnings of sequences [N, T] up to their ends [N]."""
    order = sorted(range(len(ids)), key=lambda row: sort_key(ids[row], ends[row]))
    ids, ends = ids[order], ends[order]
    shared, places = count_shared(ids, ends)[:, None], np.arange(ids.shape[1])
    own = (places >= shared) & (places < ends[:, None])
    counts = own.cumsum().reshape(own.shape)
    numbers = np.zeros_like(ids)
    numbers[order] = np.maximum.accumulate(np.where(own, counts - 1, 0), axis=0)
    # A beginning ends where the next sequence shares no more than the tokens before it.
    starts = np.concatenate([[0], own.sum(1).cumsum()])
    later = np.full((len(ids) + 1, ids.shape[1]), starts[-1])
    later[:-1] = np.where(shared <= places, starts[:-1, None], starts[-1])
    stops = np.minimum.accumulate(later[::-1], axis=0)[::-1]
    return Prefixes(ids[own], np.nonzero(own)[1], stops[1:][own], numbers)


def arrange_blocks(prefixes: Prefixes) -> Blocks:
    """Rows for all prefixes, in blocks that are about a quarter as long as the longest prefix.

    Smaller blocks would read more paths, larger ones compare more rows in vain.
    """
    count = len(prefixes.tokens)
    most = max(_LEAST, int(prefixes.depths.max(initial=0)) // 4)
    groups = max(-(-count // most), 1)
    size = max(-(-count // groups), 1)
    rows = np.arange(groups * size).reshape(groups, size)
    keys, stops = _find_keys(rows, np.append(prefixes.stops, rows.ravel()[count:] + 1))
    visible = (keys[:, None] <= rows[..., None]) & (rows[..., None] < stops[:, None])
    more = 0, rows.size - count
    return Blocks(np.pad(prefixes.tokens, more), np.pad(prefixes.depths, more), keys, visible)


def _find_keys(rows: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """The keys [G, K] of blocks of rows [G, B], and their stops [G, K].

    stops: as in Prefixes, of all rows [M]. The stop is 0 where a path is filled up.
    """
    first = rows[:, :1]
    above = (np.arange(len(stops)) < first) & (stops > first)  # [G, M]
    inside = np.arange(above.sum(1).max()) < above.sum(1)[:, None]  # [G, K - B]
    path = np.zeros(inside.shape, np.int64)
    path[inside] = np.nonzero(above)[1]
    keys = np.concatenate([path, rows], axis=1)
    return keys, stops[keys] * np.pad(inside, ((0, 0), (0, rows.shape[1])), constant_values=True)
