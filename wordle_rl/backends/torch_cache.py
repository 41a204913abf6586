"""Keys and values of many rows of different length, in the form that transformers' models ask for.

Rows lie in slots of one buffer per layer. A forward pass always works on the first n slots and
reads them up to the capacity, so that the buffer is read in place and in one piece (products of
many small matrices that do not lie side by side are several times slower); rows that leave are
replaced by moving the last ones.
"""

from __future__ import annotations

import torch
from transformers import Cache

_STEP = 16  # tokens; capacities are multiples of this


class SlotCache(Cache):
    """A transformers Cache with a length of its own for each row."""

    def __init__(self, layers: int) -> None:
        self._keys: list[torch.Tensor | None] = [None] * layers  # [slots, heads, capacity, dim]
        self._values: list[torch.Tensor | None] = [None] * layers
        self._slots = 0
        self._rows = 0
        self._start: int | None = None
        self._index: tuple[torch.Tensor, torch.Tensor] | None = None
        self.capacity = 0  # tokens a row has room for

    def reserve(self, slots: int, capacity: int) -> None:
        """Make room for rows and tokens; what is held stays."""
        if slots <= self._slots and capacity <= self.capacity:
            return
        self._slots = max(slots, self._slots)
        if capacity > self.capacity:
            # Long rows grow by an eighth, so that copying them stays cheap.
            self.capacity = -(-max(capacity, self.capacity * 9 // 8) // _STEP) * _STEP
        for store in (self._keys, self._values):
            for layer, old in enumerate(store):
                if old is not None:
                    store[layer] = self._resized(old)

    def _resized(self, old: torch.Tensor) -> torch.Tensor:
        slots, heads, capacity, dim = old.shape
        # Zeros, not empty: a masked key still meets 0 x value, and 0 x NaN would not be 0.
        new = old.new_zeros(self._slots, heads, self.capacity, dim)
        new[:slots, :, :capacity] = old
        return new

    def prepare(self, rows: int, positions: torch.Tensor, start: int | None) -> None:
        """Say where the next forward pass writes.

        positions: [rows, tokens] place of each new token in its row; start: the common first
        place when all rows have the same length.
        """
        self._rows, self._start = rows, start
        if start is None:
            index = torch.arange(rows, device=positions.device)[:, None]
            self._index = (index.expand_as(positions), positions)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Store new keys and values [rows, heads, tokens, dim]; returns all up to the capacity."""
        views = []
        for store, new in ((self._keys, key_states), (self._values, value_states)):
            buffer = store[layer_idx]
            if buffer is None:
                shape = (self._slots, new.shape[1], self.capacity, new.shape[3])
                buffer = store[layer_idx] = new.new_zeros(shape)
            if self._start is not None:
                buffer[: self._rows, :, self._start : self._start + new.shape[2]] = new
            else:
                assert self._index is not None
                rows, places = self._index
                buffer[rows, :, places] = new.transpose(1, 2)
            views.append(buffer[: self._rows])
        return views[0], views[1]

    def move(self, sources: list[int], targets: list[int], length: int) -> None:
        """Copy the first `length` tokens of source slots into target slots, all at once."""
        for store in (self._keys, self._values):
            for buffer in store:
                if buffer is not None:
                    source = torch.tensor(sources, device=buffer.device)
                    buffer[targets, :, :length] = buffer[source, :, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.capacity
