"""Keys and values of many rows of different length, in the form that transformers' models ask for.

Rows lie in slots of one buffer per layer. A forward pass always works on the first n slots, so
that attention reads the buffer in place; rows that leave are replaced by moving the last ones.
"""

from __future__ import annotations

import torch
from transformers import Cache

_GROWTH = 64  # tokens; buffers grow in steps of this


class SlotCache(Cache):
    """A transformers Cache with a length of its own for each row."""

    def __init__(self, layers: int) -> None:
        self._keys: list[torch.Tensor | None] = [None] * layers  # [slots, heads, capacity, dim]
        self._values: list[torch.Tensor | None] = [None] * layers
        self._slots = 0
        self._capacity = 0
        self._rows = 0
        self._end = 0
        self._start: int | None = None
        self._index: tuple[torch.Tensor, torch.Tensor] | None = None

    def reserve(self, slots: int, capacity: int) -> None:
        """Make room for rows and tokens; what is held stays."""
        if slots <= self._slots and capacity <= self._capacity:
            return
        self._slots = max(slots, self._slots)
        if capacity > self._capacity:
            self._capacity = -(-capacity // _GROWTH) * _GROWTH
        for store in (self._keys, self._values):
            for layer, old in enumerate(store):
                if old is not None:
                    store[layer] = self._resized(old)

    def _resized(self, old: torch.Tensor) -> torch.Tensor:
        slots, heads, capacity, dim = old.shape
        # Zeros, not empty: a masked key still meets 0 x value, and 0 x NaN would not be 0.
        new = old.new_zeros(self._slots, heads, self._capacity, dim)
        new[:slots, :, :capacity] = old
        return new

    def prepare(self, positions: torch.Tensor, start: int | None, end: int) -> None:
        """Say where the next forward pass writes.

        positions: [rows, tokens] place of each new token in its row; start: the common first
        place when all rows have the same length; end: length of the longest row afterwards.
        """
        self._rows, self._start, self._end = positions.shape[0], start, end
        if start is None:
            rows = torch.arange(self._rows, device=positions.device)[:, None]
            self._index = (rows.expand_as(positions), positions)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Store new keys and values [rows, heads, tokens, dim]; returns all up to `end`."""
        views = []
        for store, new in ((self._keys, key_states), (self._values, value_states)):
            buffer = store[layer_idx]
            if buffer is None:
                shape = (self._slots, new.shape[1], self._capacity, new.shape[3])
                buffer = store[layer_idx] = new.new_zeros(shape)
            if self._start is not None:
                stop = self._start + new.shape[2]
                buffer[: self._rows, :, self._start : stop] = new
            else:
                assert self._index is not None
                rows, places = self._index
                buffer[rows, :, places] = new.transpose(1, 2)
            views.append(buffer[: self._rows, :, : self._end])
        return views[0], views[1]

    def move(self, sources: list[int], targets: list[int], length: int) -> None:
        """Copy the first `length` tokens of source slots into target slots, all at once."""
        if not sources:
            return
        for store in (self._keys, self._values):
            for buffer in store:
                if buffer is not None:
                    source = torch.tensor(sources, device=buffer.device)
                    buffer[targets, :, :length] = buffer[source, :, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._end
