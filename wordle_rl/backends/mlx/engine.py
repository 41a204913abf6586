"""The rollout engine on MLX, over any mlx-lm model whose layers keep keys and values.

It keeps keys and values from turn to turn, copies them for forks, and takes rows of any length.
Finished rows leave the batch once a quarter of it has finished. Shapes are rounded up, so that few
of them are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from wordle_rl.backends.mlx.cache import CHUNK, KVShape, choose_rounding
from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.backends.mlx.sampling import sample_tokens
from wordle_rl.backends.mlx.save import Weights
from wordle_rl.policy.engine import Completion, NotFinite, StopReason
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers

_SHRINK = 0.75  # rearrange rows when at most this share of them is still decoding


class CompiledModel:
    """The computations of an engine, compiled once per shape. It outlives engines and updates."""

    def __init__(self, lm: MlxLM, *, max_context: int, compiled: bool) -> None:
        self.lm, self.max_context = lm, max_context
        self.round_up = choose_rounding(compiled)
        self._rings = lm.build_rings(max_context)
        self._compiled = compiled
        self._compile: Callable[[Any], Any] = mx.compile if compiled else lambda f: f
        self._functions: dict[Any, Any] = {}
        self._shapes: list[KVShape] | None = None

    def find_kv_shapes(self, weights: Weights) -> list[KVShape]:
        if self._shapes is None:
            self._shapes = self.lm.find_kv_shapes(weights)
        return self._shapes

    def count_keys(self, tokens: int) -> tuple[int, ...]:
        """How many keys each layer reads for rows of at most so many tokens."""
        if self._compiled:
            return tuple(ring.round_capacity(tokens) for ring in self._rings)
        return tuple(min(tokens, ring.size) for ring in self._rings)

    def feed(self, *arguments: Any, ends: tuple[int, ...]) -> Any:
        """(weights, ids, positions, last, keys, values) -> (hidden [N, H], keys, values)."""
        if not self._compiled:
            return self._feed(*arguments, ends=ends)
        if ends not in self._functions:
            self._functions[ends] = self._compile(lambda *a: self._feed(*a, ends=ends))
        return self._functions[ends](*arguments)

    def _feed(
        self, weights: Weights, ids: mx.array, positions: mx.array, last: mx.array,
        keys: list[mx.array], values: list[mx.array], *, ends: tuple[int, ...],
    ) -> Any:  # fmt: skip
        with self.lm.use_weights(weights):
            hidden, keys, values = self.lm.compute_cached_hidden(
                ids, positions, keys, values, self._rings, ends
            )
        hidden = hidden[:, 0] if ids.shape[1] == 1 else hidden[mx.arange(ids.shape[0]), last]
        return hidden, keys, values

    def sample_tokens(
        self, weights: Weights, hidden: mx.array, numbers: mx.array, sampling: Sampling
    ) -> Any:
        """Token ids [N] and their log-probabilities [N] at uniform numbers [N]."""
        if sampling not in self._functions:

            def sample(weights: Weights, hidden: mx.array, numbers: mx.array) -> Any:
                with self.lm.use_weights(weights):
                    return sample_tokens(self.lm.compute_logits(hidden), sampling, numbers)

            self._functions[sampling] = self._compile(sample)
        return self._functions[sampling](weights, hidden, numbers)

    def score_next(self, weights: Weights, hidden: mx.array) -> mx.array:
        """float32 [N, V] log-probabilities of every next token. Not compiled: it is seldom used."""
        with self.lm.use_weights(weights):
            logits = self.lm.compute_logits(hidden)
        return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


class MlxEngine:
    """Implements wordle_rl.policy.engine.Engine."""

    def __init__(
        self, model: CompiledModel, weights: Weights, *, stop_ids: frozenset[int],
        timers: Timers | None = None,
    ) -> None:  # fmt: skip
        self._model, self._weights = model, weights
        self._stop_ids, self._timers = stop_ids, timers or Timers()
        self._max_context = model.max_context
        self._rings = model.lm.build_rings(model.max_context)
        self._slots: list[int | None] = []  # the row in each slot; None for a free slot
        self._length: dict[int, int] = {}  # tokens in the cache
        self._pending: dict[int, list[int]] = {}  # tokens drawn but not yet fed
        self._hidden: dict[int, mx.array] = {}  # [H] last hidden state of each row
        self._next_row = 0

    def open(self, n: int) -> list[int]:
        rows = list(range(self._next_row, self._next_row + n))
        self._next_row += n
        self._slots += rows
        for row in rows:
            self._length[row], self._pending[row] = 0, []
        return rows

    def release(self, rows: Sequence[int]) -> None:
        for row in set(rows):
            self._slots[self._slots.index(row)] = None
            del self._length[row], self._pending[row]
            self._hidden.pop(row, None)

    def fork(self, row: int, n: int) -> list[int]:
        source = self._slots.index(row)
        copies = [*range(len(self._slots)), *[source] * n]
        new = self.open(n)
        self._take(copies)
        for r in new:
            self._length[r], self._pending[r] = self._length[row], list(self._pending[row])
            if row in self._hidden:
                self._hidden[r] = self._hidden[row]
        return new

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> list[bool]:
        with self._timers("prefill"):
            feeds = [[*self._pending[r], *new] for r, new in zip(rows, ids, strict=True)]
            if not all(feeds):
                raise ValueError("extend needs at least one token per row")
            fits = [
                self._length[r] + len(f) < self._max_context
                for r, f in zip(rows, feeds, strict=True)
            ]
            left = {r: f for r, f, fit in zip(rows, feeds, fits, strict=True) if fit}
            while left:
                now = {r: feed[:CHUNK] for r, feed in left.items()}
                for r, hidden in zip(
                    now, self._forward(list(now), list(now.values())), strict=True
                ):
                    self._length[r] += len(now[r])
                    self._pending[r], self._hidden[r] = [], hidden
                left = {r: feed[CHUNK:] for r, feed in left.items() if len(feed) > CHUNK}
        return fits

    def decode(
        self, rows: Sequence[int], sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> list[Completion]:
        with self._timers("decode"):
            drawn: dict[int, tuple[list[int], list[float]]] = {r: ([], []) for r in rows}
            stops: dict[int, StopReason] = {}
            numbers = dict(zip(rows, uniforms.astype(np.float32), strict=True))
            order = list(rows)
            hidden = mx.stack([self._hidden.pop(r) for r in rows])
            for token in range(sampling.max_tokens):
                uniform = np.array([numbers[r][token] for r in order])
                for r, i, logprob in zip(
                    order, *self._draw(hidden, sampling, uniform), strict=True
                ):
                    if r not in stops:
                        drawn[r][0].append(i)
                        drawn[r][1].append(logprob)
                        self._check_stop(r, i, token + 1 == sampling.max_tokens, stops)
                active = [r for r in order if r not in stops]
                if not active:
                    break
                if len(active) <= _SHRINK * len(order):
                    order = active
                # A finished row is fed its last token again, but keeps its length, so nobody reads
                # the new keys and values.
                hidden = self._forward(order, [[drawn[r][0][-1]] for r in order])
                for r in active:
                    self._length[r] += 1
        return [Completion(ids=drawn[r][0], logprobs=drawn[r][1], stop=stops[r]) for r in rows]

    def next_logprobs(self, rows: Sequence[int]) -> NDArray[np.float32]:
        hidden = mx.stack([self._hidden[row] for row in rows])
        found = np.array(self._model.score_next(self._weights, hidden))
        if not np.isfinite(found).all():
            raise NotFinite
        return found

    def _check_stop(self, row: int, token: int, last: bool, stops: dict[int, StopReason]) -> None:
        if token in self._stop_ids:
            stops[row] = StopReason.STOP_TOKEN
        elif last:
            stops[row] = StopReason.TOKEN_LIMIT
        elif self._length[row] + 1 >= self._max_context:
            stops[row] = StopReason.CONTEXT_FULL
        if row in stops:
            self._pending[row] = [token]

    def _draw(
        self, hidden: mx.array, sampling: Sampling, uniform: NDArray[np.float32]
    ) -> tuple[list[int], list[float]]:
        n = len(hidden)
        if more := self._model.round_up(n) - n:
            hidden, uniform = mx.pad(hidden, [(0, more), (0, 0)]), np.pad(uniform, (0, more))
        ids, logprobs = self._model.sample_tokens(
            self._weights, hidden, mx.array(uniform), sampling
        )
        mx.eval(ids, logprobs)
        if not mx.isfinite(logprobs[:n]).all().item():
            raise NotFinite
        return ids.tolist()[:n], logprobs.tolist()[:n]

    def _forward(self, rows: list[int], feeds: list[list[int]]) -> mx.array:
        """Feed tokens to rows. Returns the last hidden states [rows, H]; the lengths stay as is."""
        n = self._arrange(rows)
        order = self._slots[:n]
        place = {row: slot for slot, row in enumerate(order)}
        slots = [place[row] for row in rows]
        lengths = np.array([0 if r is None else self._length[r] for r in order], np.int32)
        width = self._model.round_up(max(map(len, feeds)))
        tokens = int(lengths.max()) + width
        ids, last = np.zeros((n, width), np.int32), np.zeros(n, np.int32)
        ids[slots] = [[*feed, *[0] * (width - len(feed))] for feed in feeds]
        last[slots] = [len(feed) - 1 for feed in feeds]
        shapes = self._model.find_kv_shapes(self._weights)
        buffers = [
            ring.reserve(self._model.round_up(len(self._slots)), tokens, shape)
            for ring, shape in zip(self._rings, shapes, strict=True)
        ]
        keys, values = [k for k, _ in buffers], [v for _, v in buffers]
        del buffers
        hidden, keys, values = self._model.feed(
            self._weights, mx.array(ids),
            mx.array(lengths[:, None] + np.arange(width, dtype=np.int32)), mx.array(last),
            keys, values, ends=self._model.count_keys(tokens),
        )  # fmt: skip
        for ring, k, v in zip(self._rings, keys, values, strict=True):
            ring.keys, ring.values = k, v
        del keys, values
        mx.eval(hidden, [(ring.keys, ring.values) for ring in self._rings])
        return hidden if slots == list(range(n)) else hidden[mx.array(slots)]

    def _arrange(self, rows: list[int]) -> int:
        """Move rows into the first slots. Returns the rounded number of slots to compute."""
        n = self._model.round_up(len(rows))
        wanted = set(rows)
        if not wanted <= set(self._slots[: max(n, len(rows))]):
            first = [i for i, row in enumerate(self._slots) if row in wanted]
            others = [i for i, r in enumerate(self._slots) if r is not None and r not in wanted]
            self._take([*first, *others])
            self._slots = [self._slots[i] for i in (*first, *others)]
        while len(self._slots) < n:
            self._slots.append(None)
        return n

    def _take(self, slots: list[int]) -> None:
        for ring in self._rings:
            ring.take(slots)
