"""Keys and values of rows of different lengths, as a cache for transformers' models.

Each row has a slot in one buffer per layer. A forward pass works on the first n slots and reads
them up to the capacity, so that it reads the buffer in place and in one piece. (Products of many
small matrices scattered in memory are several times slower.) When rows leave, the last ones move
into their slots.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache

_STEP = 16  # tokens; capacities are multiples of this


class SlotBuffers:
    """Keys and values of all rows in all layers."""

    def __init__(self, layers: int) -> None:
        self._layers: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * layers
        self._slots = 0
        self.capacity = 0  # tokens a row has room for

    def reserve(self, slots: int, capacity: int) -> None:
        """Make room for rows and tokens, and keep the contents."""
        if slots <= self._slots and capacity <= self.capacity:
            return
        self._slots = max(slots, self._slots)
        if capacity > self.capacity:
            # Long rows grow by an eighth, so that copying them stays cheap.
            self.capacity = -(-max(capacity, self.capacity * 9 // 8) // _STEP) * _STEP
        for index, pair in enumerate(self._layers):
            if pair is not None:
                self._layers[index] = (self._resize(pair[0]), self._resize(pair[1]))

    def _resize(self, old: torch.Tensor) -> torch.Tensor:
        slots, heads, capacity, dim = old.shape
        # A hidden value is still multiplied by 0, and 0 x NaN is NaN. So the rest is 0.
        new = old.new_zeros(self._slots, heads, self.capacity, dim)
        new[:slots, :, :capacity] = old
        return new

    def get_layer(self, index: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A layer's keys and values [slots, heads, capacity, dim].

        like: [_, heads, _, dim] keys that give the shape when the layer has no buffer yet.
        """
        pair = self._layers[index]
        if pair is None:
            shape = (self._slots, like.shape[1], self.capacity, like.shape[3])
            pair = self._layers[index] = (like.new_zeros(shape), like.new_zeros(shape))
        return pair

    def move(self, sources: list[int], targets: list[int]) -> None:
        """Copy source slots into target slots, all at once."""
        for pair in self._layers:
            for buffer in pair or ():
                source, target = torch.tensor([sources, targets], device=buffer.device)
                buffer.index_copy_(0, target, buffer.index_select(0, source))


class SlotCache(Cache):
    """A transformers Cache of slots 0, 1, ... for one forward pass that adds tokens to them.

    positions: [n, width] places of the new tokens, or [1, width] for rows of one length.
    """

    def __init__(
        self, buffers: SlotBuffers, lengths: NDArray[np.int64], width: int, device: torch.device
    ) -> None:
        """lengths: [n] of the rows so far. width: new tokens of each, padding included."""
        self.layers = []  # transformers' own, of which it asks only the kinds
        self._buffers, self._slots = buffers, len(lengths)
        # Padding goes into the cache behind a row's tokens, so there must be room for it.
        buffers.reserve(self._slots, int(lengths.max()) + width)
        self.capacity = buffers.capacity
        equal = bool((lengths == lengths[0]).all())
        places = (lengths[:1] if equal else lengths)[:, None] + np.arange(width)
        self.positions = torch.from_numpy(places).to(device)
        self._start = int(lengths[0]) if equal else None
        rows = torch.arange(self._slots, device=device)[:, None]
        self._index = rows.expand(-1, width), self.positions

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Store new keys and values [rows, heads, tokens, dim]. Returns all up to the capacity."""
        keys, values = self._buffers.get_layer(layer_idx, key_states)
        for buffer, new in ((keys, key_states), (values, value_states)):
            if self._start is not None:
                buffer[: self._slots, :, self._start : self._start + new.shape[2]] = new
            else:
                rows, places = self._index
                buffer[rows, :, places] = new.transpose(1, 2)
        return keys[: self._slots], values[: self._slots]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.capacity
