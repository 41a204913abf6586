"""The rollout engine's model on MLX, over any mlx-lm model whose layers keep keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from wordle_rl.backends.engine import CachedEngine, Ints
from wordle_rl.backends.mlx.cache import LayerCache
from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.backends.mlx.sampling import sample_tokens
from wordle_rl.backends.mlx.save import Weights
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers


def build_engine(
    lm: MlxLM,
    weights: Weights,
    *,
    stop_ids: frozenset[int],
    max_context: int,
    timers: Timers | None = None,
) -> CachedEngine:
    """An engine with an empty cache on these weights."""
    return CachedEngine(
        MlxRows(lm, weights), stop_ids=stop_ids, max_context=max_context, timers=timers
    )


class MlxRows:
    """Implements wordle_rl.backends.engine.Model. Hidden states are [n, H]."""

    def __init__(self, lm: MlxLM, weights: Weights) -> None:
        self._lm, self._weights = lm, weights
        self._caches = [LayerCache() for _ in lm.model.layers]

    def feed(self, ids: Ints, starts: Ints, last: Ints) -> mx.array:
        for cache in self._caches:
            cache.place(starts, ids.shape[1])
        with self._lm.use_weights(self._weights):
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
        self, hidden: mx.array, sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float32]]:
        with self._lm.use_weights(self._weights):
            logits = self._lm.compute_logits(hidden)
        ids, logprobs = sample_tokens(logits, sampling, mx.array(uniforms.astype(np.float32)))
        return np.array(ids, np.int64), _fetch(logprobs)

    def score(self, hidden: mx.array) -> NDArray[np.float32]:
        with self._lm.use_weights(self._weights):
            logits = self._lm.compute_logits(hidden)
        return _fetch(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def _fetch(logprobs: mx.array) -> NDArray[np.float32]:
    """Log-probabilities as an array. Raises NotFinite."""
    found = np.array(logprobs)
    if not np.isfinite(found).all():
        raise NotFinite
    return found
