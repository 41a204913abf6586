"""Keys and values of rows of different lengths, as a cache for transformers' models.

Each row has a slot in one buffer per layer. A forward pass works on the first n slots and reads
them up to the capacity, so that it reads the buffer in place and in one piece. (Products of many
small matrices scattered in memory are several times slower.) When rows leave, the last ones move
into their slots.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        new = old.new_empty(self._slots, heads, self.capacity, dim)
        new[:slots, :, :capacity] = old
        # A hidden value is still multiplied by 0, and 0 x NaN is NaN.
        new[:slots, :, capacity:] = 0
        new[slots:] = 0
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where new tokens of some rows go."""

    positions: torch.Tensor  # [n, T] on the device, or [1, T] for rows of one length
    start: int | None  # the first position, for rows of one length
    end: int  # behind the last position

    @classmethod
    def behind(cls, lengths: NDArray[np.int64], width: int, device: torch.device) -> Place:
        """Where the next `width` tokens of rows with these lengths [n] go."""
        equal = bool((lengths == lengths[0]).all())
        places = (lengths[:1] if equal else lengths)[:, None] + np.arange(width)
        positions = torch.from_numpy(places).to(device)
        return cls(positions, int(lengths[0]) if equal else None, int(lengths.max()) + width)


class SlotCache(Cache):
    """A transformers Cache of slots 0, 1, ... for one forward pass. place: of the new tokens."""

    def __init__(self, buffers: SlotBuffers, slots: int, place: Place) -> None:
        positions = place.positions
        self.layers = []  # transformers' own, of which it asks only the kinds
        self._buffers = buffers
        self._slots = slots
        self._start = place.start
        if place.start is None:
            rows = torch.arange(slots, device=positions.device)[:, None]
            self._index = (rows.expand_as(positions), positions)
        self.positions = positions
        self.capacity = buffers.capacity

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
