"""The rollout engine on torch, over any decoder-only transformers model.

Keys and values are kept from turn to turn, forks copy them, rows may have any length, and rows
that have finished stop costing once a quarter of the batch has. Works on one device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from wordle_rl.backends.causal_lm import CausalLM
from wordle_rl.backends.torch_cache import SlotCache
from wordle_rl.records import Completion, StopReason
from wordle_rl.sampling import Sampling
from wordle_rl.timing import Timers

_SHRINK = 0.75  # rearrange rows once this share of them, or less, is still decoding


class TorchEngine:
    """Implements wordle_rl.engine.Engine."""

    def __init__(
        self,
        lm: CausalLM,
        *,
        stop_ids: frozenset[int],
        max_context: int,
        timers: Timers | None = None,
    ) -> None:
        self._lm = lm
        self._stop_ids = stop_ids
        self._max_context = max_context
        self._timers = timers or Timers()
        self._cache = SlotCache(lm.layers)
        self._slot: dict[int, int] = {}  # row -> slot
        self._row: list[int] = []  # slot -> row
        self._length: dict[int, int] = {}  # tokens in the cache
        self._pending: dict[int, list[int]] = {}  # drawn, not yet fed
        self._hidden: dict[int, torch.Tensor] = {}  # [H] last hidden state of each row
        self._next_row = 0

    def open(self, n: int) -> list[int]:
        rows = list(range(self._next_row, self._next_row + n))
        self._next_row += n
        for row in rows:
            self._slot[row] = len(self._row)
            self._row.append(row)
            self._length[row] = 0
            self._pending[row] = []
        self._cache.reserve(len(self._row), 0)
        return rows

    @torch.inference_mode()
    def release(self, rows: Sequence[int]) -> None:
        leaving = set(rows)
        self._arrange([row for row in self._row if row not in leaving])
        for row in leaving:
            del self._slot[row], self._length[row], self._pending[row]
            self._hidden.pop(row, None)
        del self._row[len(self._slot) :]

    @torch.inference_mode()
    def fork(self, row: int, n: int) -> list[int]:
        new = self.open(n)
        source = self._slot[row]
        self._cache.move([source] * n, [self._slot[r] for r in new], self._length[row])
        for r in new:
            self._length[r] = self._length[row]
            self._pending[r] = list(self._pending[row])
            if row in self._hidden:
                self._hidden[r] = self._hidden[row]
        return new

    @torch.inference_mode()
    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> list[bool]:
        with self._timers("prefill"):
            feeds = [[*self._pending[r], *new] for r, new in zip(rows, ids, strict=True)]
            if not all(feeds):
                raise ValueError("extend needs at least one token per row")
            fits = [
                self._length[r] + len(f) < self._max_context
                for r, f in zip(rows, feeds, strict=True)
            ]
            fitting = [(r, f) for r, f, fit in zip(rows, feeds, fits, strict=True) if fit]
            if fitting:
                self._arrange([r for r, _ in fitting])
                feed = dict(fitting)
                order = self._row[: len(feed)]
                hidden = self._forward(order, [feed[r] for r in order])
                for r, h in zip(order, hidden, strict=True):
                    self._pending[r] = []
                    self._hidden[r] = h
        return fits

    @torch.inference_mode()
    def decode(
        self, rows: Sequence[int], sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> list[Completion]:
        with self._timers("decode"):
            self._arrange(list(rows))
            drawn: dict[int, tuple[list[int], list[float]]] = {r: ([], []) for r in rows}
            stops: dict[int, StopReason] = {}
            draws = dict(zip(rows, uniforms, strict=True))
            order = self._row[: len(rows)]
            hidden = torch.stack([self._hidden.pop(r) for r in order])
            for token in range(sampling.max_tokens):
                numbers = np.array([draws[r][token] for r in order])
                ids, logprobs = draw(self._lm.logits(hidden), sampling, numbers)
                for r, i, logprob in zip(order, ids, logprobs, strict=True):
                    if r not in stops:
                        drawn[r][0].append(i)
                        drawn[r][1].append(logprob)
                        self._check_stop(r, i, token + 1 == sampling.max_tokens, stops)
                if len(stops) == len(rows):
                    break
                active = [r for r in order if r not in stops]
                if len(active) <= _SHRINK * len(order):
                    self._arrange(active)
                    order = self._row[: len(active)]
                # A finished row rides along with its last token again: beyond its length nothing
                # is ever read.
                feeds = [[drawn[r][0][-1]] for r in order]
                hidden = self._forward(order, feeds, frozen=stops)
        return [Completion(ids=drawn[r][0], logprobs=drawn[r][1], stop=stops[r]) for r in rows]

    def _check_stop(self, row: int, token: int, last: bool, stops: dict[int, StopReason]) -> None:
        if token in self._stop_ids:
            stops[row] = StopReason.STOP_TOKEN
        elif last:
            stops[row] = StopReason.TOKEN_LIMIT
        elif self._length[row] + 1 >= self._max_context:
            stops[row] = StopReason.CONTEXT_FULL
        if row in stops:
            self._pending[row] = [token]

    def _forward(
        self, order: list[int], feeds: list[list[int]], frozen: dict[int, StopReason] | None = None
    ) -> torch.Tensor:
        """Feed tokens to the rows in slots 0, 1, ...; returns their last hidden states [rows, H].

        frozen rows keep their length: what they are fed is forgotten.
        """
        lengths = np.array([self._length[r] for r in order])
        counts = np.array([len(f) for f in feeds])
        width, end = int(counts.max()), int((lengths + counts).max())
        start = int(lengths[0]) if (lengths == lengths[0]).all() else None
        # Padding is written behind a row's tokens, so the buffer must reach that far.
        self._cache.reserve(len(self._row), int(lengths.max()) + width)
        ids = np.zeros((len(order), width), np.int64)
        for i, feed in enumerate(feeds):
            ids[i, : len(feed)] = feed
        positions = torch.from_numpy(lengths[:, None] + np.arange(width)).to(self._lm.device)
        self._cache.prepare(positions, start, max(end, int(lengths.max()) + width))
        hidden = self._lm.cached_hidden(
            torch.from_numpy(ids).to(self._lm.device), positions, self._cache
        )
        for r, count in zip(order, counts.tolist(), strict=True):
            if frozen is None or r not in frozen:
                self._length[r] += count
        if width == 1:
            return hidden[:, 0]
        last = torch.from_numpy(counts - 1).to(hidden.device)
        return hidden[torch.arange(len(order), device=hidden.device), last]

    def _arrange(self, rows: list[int]) -> None:
        """Bring rows into the first slots, moving as few as possible."""
        wanted = set(rows)
        n = len(wanted)
        holes = [slot for slot in range(n) if self._row[slot] not in wanted]
        if not holes:
            return
        late = [self._slot[r] for r in rows if self._slot[r] >= n]
        length = max(self._length[self._row[s]] for s in (*holes, *late))
        # Both ways: the rows that make room may still be live.
        self._cache.move(late + holes, holes + late, length)
        for hole, slot in zip(holes, late, strict=True):
            self._row[hole], self._row[slot] = self._row[slot], self._row[hole]
            self._slot[self._row[hole]], self._slot[self._row[slot]] = hole, slot


def draw(
    logits: torch.Tensor, sampling: Sampling, uniforms: NDArray[np.float64]
) -> tuple[list[int], list[float]]:
    """Invert the distribution of each row at its uniform number.

    logits: float32 [rows, V]. Returns ids and their natural log-probabilities under the
    distribution that was drawn from (temperature, top-k and top-p applied; greedy: temperature 1).
    """
    if sampling.temperature == 0.0:
        logprobs = torch.log_softmax(logits, dim=-1)
        ids = logits.argmax(dim=-1, keepdim=True)
    else:
        logprobs = torch.log_softmax(_cut(logits / sampling.temperature, sampling), dim=-1)
        cumulative = logprobs.exp().cumsum(dim=-1)
        total = cumulative[:, -1:]
        target = torch.from_numpy(uniforms).to(logits.device, torch.float32)[:, None] * total
        # Rounding must not reach the total, behind which no token lies.
        target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
        ids = torch.searchsorted(cumulative, target, right=True)
    return ids[:, 0].tolist(), logprobs.gather(1, ids)[:, 0].tolist()


def _cut(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Logits with what top-k and top-p leave out at minus infinity."""
    if sampling.top_k:
        kth = logits.topk(min(sampling.top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, index = logits.sort(dim=-1, descending=True)
        before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
        outside = torch.zeros_like(logits, dtype=torch.bool).scatter(
            1, index, before >= sampling.top_p
        )
        logits = logits.masked_fill(outside, -torch.inf)
    return logits
