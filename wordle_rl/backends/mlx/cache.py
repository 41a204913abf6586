"""Keys and values of rows of different lengths, as a cache for mlx-lm's layers.

Each row has a slot in one buffer per layer. A layer with a sliding window keeps a ring of its last
tokens, the others keep all tokens. A row's length alone says which token a key belongs to, so
nothing reads what is written beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mlx.core as mx

CHUNK = 256  # most tokens that one forward pass feeds to a row; a ring has room for them
_GROWTH = 64  # tokens by which buffers grow; larger steps mean fewer compiled shapes


def round_up(n: int) -> int:
    """The next of 1, 2, 4, 8, 10, 12, 14, 16, 20, ..., so that few shapes are compiled."""
    step = 1
    while n > 8 * step:
        step *= 2
    if step == 1:
        return next(size for size in (1, 2, 4, 8) if size >= n)
    return -(-n // step) * step


def choose_rounding(compiled: bool) -> Callable[[int], int]:
    """How to round up each side of a shape. Without compilation there is no need to."""
    return round_up if compiled else lambda n: n


class KVShape(NamedTuple):
    """Sizes of what a layer keeps for one token."""

    heads: int
    key_size: int
    value_size: int
    dtype: mx.Dtype


class Ring:
    """Keys and values of one layer. window is None when a token sees all tokens before it."""

    def __init__(self, window: int | None, longest: int) -> None:
        """longest: tokens that a row can hold."""
        # Padding may reach a chunk beyond a row's tokens.
        self.size = CHUNK + (longest if window is None else min(window, longest))
        self.keys: mx.array | None = None  # [slots, heads, capacity, dim]
        self.values: mx.array | None = None

    def reserve(self, slots: int, tokens: int, shape: KVShape) -> tuple[mx.array, mx.array]:
        """Keys and values with room for this many slots and tokens."""
        room = (slots, self.round_capacity(tokens))
        if self.keys is None or self.values is None:
            self.keys = mx.zeros((slots, shape.heads, room[1], shape.key_size), shape.dtype)
            self.values = mx.zeros((slots, shape.heads, room[1], shape.value_size), shape.dtype)
        self.keys, self.values = _grow(self.keys, *room), _grow(self.values, *room)
        return self.keys, self.values

    def round_capacity(self, tokens: int) -> int:
        return min(-(-tokens // _GROWTH) * _GROWTH, self.size)

    def take(self, slots: Sequence[int]) -> None:
        """Copy slot slots[i] into slot i, for all i at once."""
        if self.keys is not None and self.values is not None and slots:
            index, most = mx.array(list(slots)), max(slots) + 1
            self.keys = _grow(self.keys, most, 0)[index]
            self.values = _grow(self.values, most, 0)[index]


def _grow(array: mx.array, slots: int, capacity: int) -> mx.array:
    """Add slots or capacity, filled with zeros because hidden values are still multiplied by 0."""
    more = [(0, max(slots - array.shape[0], 0)), (0, 0), (0, max(capacity - array.shape[2], 0))]
    return mx.pad(array, [*more, (0, 0)]) if any(b for _, b in more) else array


class Probe:
    """Replaces a cache to find out what a layer keeps."""

    offset = 0
    shape: KVShape

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.shape = KVShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype)
        return keys, values

    def make_mask(self, *_: object, **__: object) -> None:
        return None


class LayerView:
    """The cache that a layer sees during one forward pass over the first slots."""

    def __init__(
        self, keys: mx.array, values: mx.array, ring: Ring, positions: mx.array, end: int
    ) -> None:
        """positions: [rows, tokens] places of the new tokens. end: number of keys to read."""
        self.keys, self.values = keys, values
        self.offset = positions[:, 0]  # where rotary positions start
        self._ring, self._positions, self._end = ring, positions, end

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Store new keys and values [rows, heads, tokens, dim]. Returns the ones to read."""
        rows = mx.arange(keys.shape[0])[:, None]
        places = self._positions % self._ring.size
        self.keys[rows, :, places] = keys.transpose(0, 2, 1, 3)
        self.values[rows, :, places] = values.transpose(0, 2, 1, 3)
        n = keys.shape[0]
        return self.keys[:n, :, : self._end], self.values[:n, :, : self._end]

    def make_mask(
        self, tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array:
        """bool [rows, 1, tokens, keys]: which keys each new token sees.

        Each place of the ring holds the newest token that maps to it.
        """
        newest = self._positions[:, -1:]  # includes padding, which comes after all queries
        held = newest - (newest - mx.arange(self._end)) % self._ring.size
        held, query = held[:, None, None, :], self._positions[:, None, :, None]
        seen = (held >= 0) & (held <= query)
        return seen if window_size is None else seen & (held > query - window_size)


def build_rings(model: Any, longest: int) -> list[Ring]:
    """One ring per layer of an mlx-lm model. Raises ValueError for other kinds of cache."""
    if not hasattr(model, "make_cache"):
        return [Ring(None, longest) for _ in model.layers]
    out = []
    for cache in model.make_cache():
        kind = type(cache).__name__
        if kind not in ("KVCache", "RotatingKVCache") or getattr(cache, "keep", 0):
            raise ValueError(f"backend=mlx: the model's cache is a {kind}, which rows cannot share")
        out.append(Ring(cache.max_size if kind == "RotatingKVCache" else None, longest))
    return out
