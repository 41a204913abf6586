"""The rollout engine's model on MLX, with a cache for rows of different lengths.

Each row has a slot in one buffer of each layer. A row's length alone says which token a key belongs
to, so nothing reads what is written beyond it. Layers with a sliding window keep all tokens, too.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.prefix_cache import Ints
from wordle_rl.policy.sampling import Sampling

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

    def _store(self, buffer: mx.array, array: mx.array) -> mx.array:
        n = len(array)
        if self._start is not None:
            buffer[:n, :, self._start : self._end] = array
        else:
            buffer[mx.arange(n)[:, None], :, self._positions] = array.transpose(0, 2, 1, 3)
        return buffer

    def make_mask(
        self, tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array:
        """bool [n, 1, T, keys]: which keys each new token sees."""
        distance = self._positions[:, None, :, None] - mx.arange(self._end)
        mask = distance >= 0
        return mask if window_size is None else mask & (distance < window_size)

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
    pads = [max(slots - buffer.shape[0], 0), 0, max(capacity - buffer.shape[2], 0), 0]
    return mx.pad(buffer, [(0, size) for size in pads]) if any(pads) else buffer


def draw_tokens(
    logits: mx.array, sampling: Sampling, uniforms: NDArray[np.float64]
) -> tuple[Ints, NDArray[np.float32]]:
    """As wordle_rl.backends.torch.engine.draw_tokens."""
    greedy = sampling.temperature == 0.0
    logits = logits if greedy else logits / sampling.temperature
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    shares = mx.exp(logits)
    total = mx.sum(shares, axis=-1, keepdims=True)
    if greedy:
        ids = mx.argmax(logits, axis=-1)
    else:
        sums = mx.cumsum(shares, axis=-1)
        # Rounding must not reach the total, because there is no token beyond it.
        numbers = mx.minimum(mx.array(uniforms.astype(np.float32)), 1.0 - 2.0**-22)
        ids = mx.sum(sums <= numbers[:, None] * sums[:, -1:], axis=-1)
    logprobs = mx.take_along_axis(logits, ids[:, None], axis=1) - mx.log(total)
    return np.array(ids, np.int64), _fetch(logprobs[:, 0])


def _fetch(logprobs: mx.array) -> NDArray[np.float32]:
    """Log-probabilities as an array. Raises NotFinite."""
    array = np.array(logprobs)
    if not np.isfinite(array).all():
        raise NotFinite
    return array


class MlxRows:
    """A wordle_rl.policy.prefix_cache.CachedModel. Hidden states are [n, H], logits [n, V]."""

    appends_only = False
    draw = staticmethod(draw_tokens)

    def __init__(self, lm: MlxLM) -> None:
        self._lm, self.compute_logits = lm, lm.compute_logits
        self._caches = [LayerCache() for _ in lm.model.layers]

    def feed(self, ids: Ints, starts: Ints, last: Ints) -> mx.array:
        for cache in self._caches:
            cache.place(starts, ids.shape[1])
        hidden = self._lm.compute_hidden(mx.array(ids.astype(np.int32)), self._caches)
        hidden = hidden[mx.arange(len(ids)), mx.array(last)]
        mx.eval(hidden, [(cache.keys, cache.values) for cache in self._caches])
        return hidden

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for cache in self._caches:
            cache.copy(sources, targets)

    def pick(self, hidden: mx.array, index: Sequence[int]) -> mx.array:
        return hidden[mx.array(list(index))]

    def score(self, logits: mx.array) -> NDArray[np.float32]:
        return _fetch(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
