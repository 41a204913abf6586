"""The rollout engine's model on MLX, over any mlx-lm model whose layers keep keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from wordle_rl.backends.engine import CachedEngine, Ints
from wordle_rl.backends.mlx.cache import LayerCache
from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers


def build_engine(
    lm: MlxLM, *, stop_ids: frozenset[int], max_context: int, timers: Timers | None = None
) -> CachedEngine:
    """An engine with an empty cache on the model's current weights."""
    return CachedEngine(MlxRows(lm), stop_ids=stop_ids, max_context=max_context, timers=timers)


class MlxRows:
    """Implements wordle_rl.backends.engine.Model. Hidden states are [n, H], logits [n, V]."""

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

    def draw(
        self, logits: mx.array, sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float32]]:
        return draw_tokens(logits, sampling, uniforms)

    def score(self, logits: mx.array) -> NDArray[np.float32]:
        return _fetch(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def draw_tokens(
    logits: mx.array, sampling: Sampling, uniforms: NDArray[np.float64]
) -> tuple[Ints, NDArray[np.float32]]:
    """As wordle_rl.backends.torch.engine.draw_tokens."""
    greedy = sampling.temperature == 0.0
    logits = logits if greedy else _mask_unlikely(logits / sampling.temperature, sampling)
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    shares = mx.exp(logits)
    total = mx.sum(shares, axis=-1, keepdims=True)
    if greedy:
        ids = mx.argmax(logits, axis=-1)
    else:
        cumulative = mx.cumsum(shares, axis=-1)
        # Rounding must not reach the total, because there is no token beyond it.
        numbers = mx.minimum(mx.array(uniforms.astype(np.float32)), 1.0 - 2.0**-22)
        ids = mx.sum(cumulative <= numbers[:, None] * cumulative[:, -1:], axis=-1)
    logprobs = mx.take_along_axis(logits, ids[:, None], axis=1) - mx.log(total)
    return np.array(ids, np.int64), _fetch(logprobs[:, 0])


def _fetch(logprobs: mx.array) -> NDArray[np.float32]:
    """Log-probabilities as an array. Raises NotFinite."""
    found = np.array(logprobs)
    if not np.isfinite(found).all():
        raise NotFinite
    return found


def _mask_unlikely(logits: mx.array, sampling: Sampling) -> mx.array:
    """Logits in which every token that top-k or top-p excludes is minus infinity."""
    if sampling.top_k:
        kth = mx.sort(logits, axis=-1)[:, -min(sampling.top_k, logits.shape[-1])]
        logits = mx.where(logits < kth[:, None], -mx.inf, logits)
    if sampling.top_p < 1.0:
        order = mx.argsort(-logits, axis=-1)
        ordered = mx.softmax(mx.take_along_axis(logits, order, axis=-1), axis=-1)
        outside = mx.cumsum(ordered, axis=-1) - ordered >= sampling.top_p
        place = mx.argsort(order, axis=-1)
        logits = mx.where(mx.take_along_axis(outside, place, axis=-1), -mx.inf, logits)
    return logits
