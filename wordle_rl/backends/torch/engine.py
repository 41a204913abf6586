"""The rollout engine's model on torch, over any decoder-only transformers model, and its draws."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import Cache

from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.grammar import Options
from wordle_rl.policy.prefix_cache import Ints
from wordle_rl.policy.sampling import Sampling

_BLOCK = 128  # tokens whose shares are added up at first
_STEP = 16  # tokens; capacities of a cache are multiples of this
_BYTES = 2**24  # of logits that are drawn from at once, so that they stay in the processor's cache


@torch.inference_mode()
def draw_tokens(
    logits: torch.Tensor, sampling: Sampling, uniforms: NDArray[np.float64]
) -> tuple[Ints, NDArray[np.float32]]:
    """Draw a token for each row: invert the row's distribution at its uniform number.

    logits: float32 [n, V]. uniforms: [n]. Returns token ids and their natural log-probabilities at
    the temperature. At temperature 0 the most likely token is taken, and its log-probability is the
    one at temperature 1. Raises NotFinite.
    """
    if sampling.temperature == 0.0:
        choice = logits.argmax(dim=-1, keepdim=True)
        return choice[:, 0].cpu().numpy(), _fetch(logits.log_softmax(-1).gather(1, choice)[:, 0])
    scale = 1.0 / sampling.temperature
    # MPS has no float64.
    dtype = torch.float32 if logits.device.type == "mps" else torch.float64
    exact_uniforms = torch.from_numpy(uniforms).to(logits.device, dtype)[:, None]
    rows = max(_BYTES // (logits.element_size() * logits.shape[-1]), 1)
    parts = zip(logits.split(rows), exact_uniforms.split(rows), strict=True)
    draws = [_draw_rows(block, scale, numbers) for block, numbers in parts]
    ids, logprobs = (torch.cat(column)[:, 0] for column in zip(*draws, strict=True))
    return ids.cpu().numpy(), _fetch(logprobs)


def _draw_rows(
    logits: torch.Tensor, scale: float, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for each row [n, V] of logits times scale, at uniforms [n, 1].

    The vocabulary is cut into blocks, whose running sums say which block a uniform number falls
    into. Only that block is added up token by token. No row depends on the others.
    Returns ids and log-probabilities, both [n, 1].
    """
    size = logits.shape[-1]
    maximum = logits.amax(-1, keepdim=True)
    shares = logits.new_empty(len(logits), -(-size // _BLOCK), _BLOCK)
    table = shares.view(len(logits), -1)
    table[:, size:] = 0.0
    table = torch.sub(logits, maximum, out=table[:, :size])
    if scale != 1.0:
        table *= scale
    table.exp_()
    sums = shares.sum(-1).to(uniforms.dtype).cumsum(-1)
    target = uniforms * sums[:, -1:]
    block = _find(sums, target)
    target -= nn.functional.pad(sums, (1, 0)).gather(1, block)
    block_shares = shares[torch.arange(len(logits), device=logits.device), block[:, 0]]
    index = _find(block_shares.to(sums.dtype).cumsum(-1), target)
    ids = (block * _BLOCK + index).clamp(max=size - 1)
    scores = (logits.gather(1, ids) - maximum).to(sums.dtype) * scale
    return ids, scores - sums[:, -1:].log()


def _find(sums: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The first index [n, 1] in rising sums [n, K] that exceeds a target [n, 1]."""
    # Rounding must not reach the total, because there is no index beyond it.
    target = torch.minimum(target, sums[:, -1:] * (1.0 - torch.finfo(sums.dtype).eps))
    # Sums that are not finite give an index beyond the last one.
    return torch.searchsorted(sums, target, right=True).clamp(max=sums.shape[-1] - 1)


def _fetch(logprobs: torch.Tensor) -> NDArray[np.float32]:
    """Log-probabilities as an array, once the device is done. Raises NotFinite."""
    array = logprobs.float().cpu().numpy()
    if not np.isfinite(array).all():
        raise NotFinite
    return array


class SlotCache(Cache):
    """Keys and values of rows of different lengths, as a cache for transformers' models.

    Each row has a slot in one buffer per layer. A forward pass works on the first n slots and reads
    them up to the capacity, so that it reads the buffer in place and in one piece. (Products of
    many small matrices scattered in memory are several times slower.) When rows leave, the last
    ones move into their slots. place() says before each forward pass where new tokens go.
    """

    positions: torch.Tensor  # [n, width] of the new tokens, [1, width] if all rows are equal

    def __init__(self, device: torch.device, *, step: int = _STEP) -> None:
        """step: tokens, of which the capacity is a multiple."""
        self.layers = []  # transformers' own, of which it asks only the kinds
        self._device, self._step = device, step
        self._buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by layer
        self.slots = 0
        self.capacity = 0  # tokens a row has room for

    def place(self, starts: NDArray[np.int64], width: int) -> None:
        """The next `width` tokens go behind the first `starts` [n] tokens of slots 0, 1, ..."""
        # Padding goes into the cache behind a row's tokens, so there must be room for it.
        self.reserve(len(starts), int(starts.max()) + width)
        equal = bool((starts == starts[0]).all())
        positions = (starts[:1] if equal else starts)[:, None] + np.arange(width)
        self.place_at(torch.from_numpy(positions).to(self._device), len(starts))
        self._start = int(starts[0]) if equal else None

    def place_at(self, positions: torch.Tensor, rows: int | None = None) -> None:
        """The next tokens go to these positions [n or 1, width], where there is room for them.

        rows: how many slots there are, None for one each.
        """
        self._rows, self.positions, self._start = rows or len(positions), positions, None
        self._slot = torch.arange(self._rows, device=self._device)[:, None]  # of each row

    def reserve(self, slots: int, capacity: int) -> None:
        """Make room for rows and tokens, and keep the contents."""
        if slots <= self.slots and capacity <= self.capacity:
            return
        self.slots = max(slots, self.slots)
        if capacity > self.capacity:
            # Long rows grow by an eighth, so that copying them stays cheap.
            self.capacity = -(-max(capacity, self.capacity * 9 // 8) // self._step) * self._step
        for layer, (keys, values) in self._buffers.items():
            self._buffers[layer] = (self._resize(keys), self._resize(values))

    def _resize(self, buffer: torch.Tensor) -> torch.Tensor:
        slots, heads, capacity, dim = buffer.shape
        # A hidden value is still multiplied by 0, and 0 x NaN is NaN. So the rest is 0.
        result = buffer.new_zeros(self.slots, heads, self.capacity, dim)
        result[:slots, :, :capacity] = buffer
        return result

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
            stub = key_states[:0, :, :0]
            self._buffers[layer_idx] = (self._resize(stub), self._resize(stub))
        keys, values = self._buffers[layer_idx]
        for buffer, states in ((keys, key_states), (values, value_states)):
            if self._start is not None:
                buffer[: self._rows, :, self._start : self._start + states.shape[2]] = states
            else:
                buffer[self._slot, :, self.positions] = states.transpose(1, 2)
        return keys[: self._rows], values[: self._rows]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.capacity


class TorchRows:
    """A wordle_rl.policy.prefix_cache.CachedModel. Hidden states are [n, H], logits [n, V]."""

    appends_only = False
    draw = staticmethod(draw_tokens)

    def __init__(self, lm: CausalLM) -> None:
        self._lm, self._trunk = lm, lm.choose_rollout_trunk()
        self._cache = SlotCache(lm.device)

    @torch.inference_mode()
    def feed(self, ids: Ints, starts: Ints, last: Ints) -> torch.Tensor:
        self._cache.place(starts, ids.shape[1])
        tokens, ends = map(self._lm.to_array, (ids, last))
        return self._trunk.compute_last_hidden(tokens, ends, self._cache)

    @torch.inference_mode()
    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._cache.move(sources, targets)

    def pick(self, hidden: torch.Tensor, index: Sequence[int]) -> torch.Tensor:
        return hidden[list(index)]

    @torch.inference_mode()
    def compute_logits(self, hidden: torch.Tensor, options: Options | None = None) -> torch.Tensor:
        return self._lm.compute_logits(hidden, options)

    @torch.inference_mode()
    def score(self, logits: torch.Tensor) -> NDArray[np.float32]:
        return _fetch(logits.log_softmax(dim=-1))
