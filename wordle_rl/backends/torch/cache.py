"""Keys and values of rows of different lengths, as a cache for transformers' models.

Each row has a slot in one buffer per layer. A forward pass works on the first n slots and reads
them up to the capacity, so that it reads the buffer in place and in one piece. (Products of many
small matrices scattered in memory are several times slower.) When rows leave, the last ones move
into their slots.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache

_STEP = 16  # tokens; capacities are multiples of this


class SlotCache(Cache):
    """Keys and values of all rows. place() says before each forward pass where new tokens go."""

    positions: torch.Tensor  # [n, width] places of the new tokens, [1, width] if all rows are equal

    def __init__(self, device: torch.device) -> None:
        self.layers = []  # transformers' own, of which it asks only the kinds
        self._device = device
        self._buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by layer
        self._slots = 0
        self.capacity = 0  # tokens a row has room for

    def place(self, starts: NDArray[np.int64], width: int) -> None:
        """The next `width` tokens go behind the first `starts` [n] tokens of slots 0, 1, ..."""
        self._rows = len(starts)
        # Padding goes into the cache behind a row's tokens, so there must be room for it.
        self.reserve(self._rows, int(starts.max()) + width)
        equal = bool((starts == starts[0]).all())
        places = (starts[:1] if equal else starts)[:, None] + np.arange(width)
        self.positions = torch.from_numpy(places).to(self._device)
        self._start = int(starts[0]) if equal else None
        self._slot = torch.arange(self._rows, device=self._device)[:, None]  # of each row

    def reserve(self, slots: int, capacity: int) -> None:
        """Make room for rows and tokens, and keep the contents."""
        if slots <= self._slots and capacity <= self.capacity:
            return
        self._slots = max(slots, self._slots)
        if capacity > self.capacity:
            # Long rows grow by an eighth, so that copying them stays cheap.
            self.capacity = -(-max(capacity, self.capacity * 9 // 8) // _STEP) * _STEP
        for layer, (keys, values) in self._buffers.items():
            self._buffers[layer] = (self._resize(keys), self._resize(values))

    def _resize(self, old: torch.Tensor) -> torch.Tensor:
        slots, heads, capacity, dim = old.shape
        # A hidden value is still multiplied by 0, and 0 x NaN is NaN. So the rest is 0.
        new = old.new_zeros(self._slots, heads, self.capacity, dim)
        new[:slots, :, :capacity] = old
        return new

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy source slots into target slots, all at once. Targets may be new slots."""
        self.reserve(max(targets) + 1, 0)
        source, target = torch.tensor([[*sources], [*targets]], device=self._device)
        for pair in self._buffers.values():
            for buffer in pair:
                buffer.index_copy_(0, target, buffer.index_select(0, source))

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values [rows, heads, tokens, dim]. Returns all up to the capacity."""
        if layer_idx not in self._buffers:
            empty = key_states[:0, :, :0]
            self._buffers[layer_idx] = (self._resize(empty), self._resize(empty))
        keys, values = self._buffers[layer_idx]
        for buffer, new in ((keys, key_states), (values, value_states)):
            if self._start is not None:
                buffer[: self._rows, :, self._start : self._start + new.shape[2]] = new
            else:
                buffer[self._slot, :, self.positions] = new.transpose(1, 2)
        return keys[: self._rows], values[: self._rows]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.capacity
