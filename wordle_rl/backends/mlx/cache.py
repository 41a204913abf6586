"""Keys and values of rows of different lengths, as a cache for one layer of mlx-lm.

Each row has a slot in one buffer. A row's length alone says which token a key belongs to, so
nothing reads what is written beyond it. Layers with a sliding window keep all tokens, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

_GROWTH = 64  # tokens by which buffers grow


class LayerCache:
    """The cache that a layer sees. place() says before each forward pass where new tokens go."""

    def __init__(self) -> None:
        self.keys: mx.array | None = None  # [slots, heads, capacity, dim]
        self.values: mx.array | None = None

    def place(self, starts: np.ndarray, width: int) -> None:
        """The next `width` tokens go behind the first `starts` [n] tokens of slots 0, 1, ..."""
        self.offset = mx.array(starts.astype(np.int32))  # where rotary positions start
        self._positions = self.offset[:, None] + mx.arange(width)  # [n, T]
        self._start = int(starts[0]) if (starts == starts[0]).all() else None
        self._end = int(starts.max()) + width  # keys to read

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Store new keys and values [n, heads, T, dim]. Returns the ones to read."""
        n, capacity = len(keys), -(-self._end // _GROWTH) * _GROWTH
        self.keys = self._store(_grow(self.keys, keys, n, capacity), keys)
        self.values = self._store(_grow(self.values, values, n, capacity), values)
        return self.keys[:n, :, : self._end], self.values[:n, :, : self._end]

    def _store(self, buffer: mx.array, new: mx.array) -> mx.array:
        n = len(new)
        if self._start is not None:
            buffer[:n, :, self._start : self._end] = new
        else:
            buffer[mx.arange(n)[:, None], :, self._positions] = new.transpose(0, 2, 1, 3)
        return buffer

    def make_mask(
        self, tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array:
        """bool [n, 1, T, keys]: which keys each new token sees."""
        behind = self._positions[:, None, :, None] - mx.arange(self._end)
        seen = behind >= 0
        return seen if window_size is None else seen & (behind < window_size)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy source slots into target slots, all at once."""
        for name in ("keys", "values"):
            buffer = getattr(self, name)
            if buffer is not None:
                index = np.arange(max(len(buffer), max(targets) + 1))
                index[len(buffer) :] = 0  # new slots that nothing is copied into
                index[list(targets)] = sources
                setattr(self, name, buffer[mx.array(index)])


def _grow(buffer: mx.array | None, like: mx.array, slots: int, capacity: int) -> mx.array:
    """A buffer with room for this many slots and tokens, as arrays like [_, heads, _, dim] need.

    New room is filled with zeros, because hidden values are still multiplied by 0.
    """
    if buffer is None:
        return mx.zeros((slots, like.shape[1], capacity, like.shape[3]), like.dtype)
    more = [max(slots - buffer.shape[0], 0), 0, max(capacity - buffer.shape[2], 0), 0]
    return mx.pad(buffer, [(0, size) for size in more]) if any(more) else buffer
