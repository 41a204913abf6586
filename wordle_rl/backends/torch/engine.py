"""The rollout engine on torch, over any decoder-only transformers model.

It keeps keys and values from turn to turn, copies them for forks, and takes rows of any length.
Once a tenth of the batch has finished, finished rows are no longer computed. Works on one device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from wordle_rl.backends.torch.cache import SlotBuffers, SlotCache
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.sampling import sample_tokens
from wordle_rl.policy.engine import Completion, StopReason
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers

_SHRINK = 0.9  # rearrange rows when at most this share of them is still decoding
_NONE = -1  # no token
_REASONS = list(StopReason)
_CONTINUES = -1  # no reason to stop


class TorchEngine:
    """Implements wordle_rl.policy.engine.Engine."""

    def __init__(
        self,
        lm: CausalLM,
        *,
        stop_ids: frozenset[int],
        max_context: int,
        timers: Timers | None = None,
    ) -> None:
        self._lm = lm
        self._trunk = lm.choose_rollout_trunk()
        self._stop_ids = sorted(stop_ids)
        self._max_context = max_context
        self._timers = timers or Timers()
        self._buffers = SlotBuffers(lm.layers)
        self._slot: dict[int, int] = {}  # row -> slot
        self._row: list[int] = []  # slot -> row
        # By slot:
        self._length = np.zeros(0, np.int64)  # tokens in the cache
        self._pending = np.zeros(0, np.int64)  # the last token if it was not fed yet, or _NONE
        self._hidden: torch.Tensor | None = None  # [slots, H] of the last token that was fed
        self._next_row = 0

    @torch.inference_mode()
    def open(self, n: int) -> list[int]:
        rows = list(range(self._next_row, self._next_row + n))
        self._next_row += n
        self._slot.update(zip(rows, range(len(self._row), len(self._row) + n), strict=True))
        self._row += rows
        self._length = np.append(self._length, np.zeros(n, np.int64))
        self._pending = np.append(self._pending, np.full(n, _NONE))
        if self._hidden is not None:
            self._hidden = nn.functional.pad(self._hidden, (0, 0, 0, n))
        self._buffers.reserve(len(self._row), 0)
        return rows

    @torch.inference_mode()
    def release(self, rows: Sequence[int]) -> None:
        leaving = set(rows)
        self._arrange([row for row in self._row if row not in leaving])
        for row in leaving:
            del self._slot[row]
        left = len(self._slot)
        del self._row[left:]
        self._length, self._pending = self._length[:left], self._pending[:left]
        if self._hidden is not None:
            self._hidden = self._hidden[:left]

    @torch.inference_mode()
    def fork(self, row: int, n: int) -> list[int]:
        new = self.open(n)
        self._copy([self._slot[row]] * n, [self._slot[r] for r in new])
        return new

    @torch.inference_mode()
    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> list[bool]:
        with self._timers("prefill"):
            feed: dict[int, list[int]] = {}
            fits: list[bool] = []
            for row, new in zip(rows, ids, strict=True):
                slot = self._slot[row]
                pending = int(self._pending[slot])
                tokens = [*new] if pending == _NONE else [pending, *new]
                if not tokens:
                    raise ValueError("extend needs at least one token per row")
                fits.append(int(self._length[slot]) + len(tokens) < self._max_context)
                if fits[-1]:
                    feed[row] = tokens
            if feed:
                self._arrange(list(feed))
                self._feed([feed[row] for row in self._row[: len(feed)]])
        return fits

    def _feed(self, feeds: list[list[int]]) -> None:
        """Feed tokens to the rows in slots 0, 1, ..."""
        n = len(feeds)
        counts = np.array([len(tokens) for tokens in feeds])
        ids = np.zeros((n, counts.max()), np.int64)
        for i, tokens in enumerate(feeds):
            ids[i, : len(tokens)] = tokens
        hidden = self._forward(ids, counts)
        if self._hidden is None:
            self._hidden = hidden.new_zeros(len(self._row), hidden.shape[1])
        self._hidden[:n] = hidden
        self._length[:n] += counts
        self._pending[:n] = _NONE

    @torch.inference_mode()
    def decode(
        self, rows: Sequence[int], sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> list[Completion]:
        with self._timers("decode"):
            n, most = len(rows), sampling.max_tokens
            self._arrange(list(rows))
            unfed = (self._length[:n] == 0) | (self._pending[:n] != _NONE)
            if self._hidden is None or unfed.any():
                raise ValueError("decode needs rows that were extended since they last answered")
            place = {row: i for i, row in enumerate(rows)}
            # The arrays are in the order of `rows`; `at` is the row in each slot.
            at = np.array([place[row] for row in self._row[:n]])
            ids = np.zeros((n, most), np.int64)
            logprobs = np.zeros((n, most))
            counts = np.zeros(n, np.int64)  # of tokens; 0 while a row is still decoding
            reasons = np.zeros(n, np.int64)  # indices into _REASONS
            hidden = self._hidden[:n]
            for token in range(most):
                drawn = sample_tokens(
                    self._lm.compute_logits(hidden), sampling, uniforms[at, token]
                )
                ids[at, token], logprobs[at, token] = drawn
                reason = self._find_stops(ids[at, token], last=token + 1 == most)
                ending = (counts[at] == 0) & (reason != _CONTINUES)
                counts[at[ending]], reasons[at[ending]] = token + 1, reason[ending]
                self._pending[: len(at)][ending] = ids[at[ending], token]
                live = counts[at] == 0
                if not live.any():
                    break
                if live.sum() <= _SHRINK * len(at):
                    active = [self._row[slot] for slot in np.flatnonzero(live)]
                    self._arrange(active)
                    at = np.array([place[row] for row in self._row[: len(active)]])
                    live = np.ones(len(at), bool)
                # A finished row is computed too but keeps its length, so nobody reads the new
                # keys and values.
                hidden = self._forward(ids[at, token][:, None], np.ones(len(at), np.int64))
                self._length[: len(at)] += live
        return [
            Completion(ids=i[:count].tolist(), logprobs=p[:count].tolist(), stop=_REASONS[reason])
            for i, p, count, reason in zip(ids, logprobs, counts, reasons, strict=True)
        ]

    def _find_stops(self, drawn: NDArray[np.int64], *, last: bool) -> NDArray[np.int64]:
        """Why these tokens end the answers in slots 0, 1, ..., as indices into _REASONS."""
        full = self._length[: len(drawn)] + 1 >= self._max_context
        reason = np.where(full, _REASONS.index(StopReason.CONTEXT_FULL), _CONTINUES)
        if last:
            reason[:] = _REASONS.index(StopReason.TOKEN_LIMIT)
        reason[np.isin(drawn, self._stop_ids)] = _REASONS.index(StopReason.STOP_TOKEN)
        return reason

    def _forward(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> torch.Tensor:
        """Feed ids [n, T], padded on the right, to the rows in slots 0, 1, ...

        counts: [n] tokens of each row. Returns the hidden states [n, H] of their last tokens. The
        caller updates the lengths.
        """
        n, width = ids.shape
        lengths = self._length[:n]
        equal = bool((lengths == lengths[0]).all())
        # Padding goes into the cache behind a row's tokens, so there must be room for it.
        self._buffers.reserve(len(self._row), int(lengths.max()) + width)
        places = (lengths[:1] if equal else lengths)[:, None] + np.arange(width)
        device = self._lm.device
        cache = SlotCache(
            self._buffers,
            n,
            torch.from_numpy(places).to(device),
            int(lengths[0]) if equal else None,
        )
        return self._trunk.compute_last_hidden(
            torch.from_numpy(ids).to(device), torch.from_numpy(counts - 1).to(device), cache
        )

    def _arrange(self, rows: list[int]) -> None:
        """Move rows into the first slots, as few of them as possible."""
        wanted = set(rows)
        n = len(wanted)
        holes = [slot for slot in range(n) if self._row[slot] not in wanted]
        if not holes:
            return
        late = [self._slot[r] for r in rows if self._slot[r] >= n]
        # Swap them, because the rows that make room may still be in use.
        self._copy(late + holes, holes + late)
        for hole, slot in zip(holes, late, strict=True):
            self._row[hole], self._row[slot] = self._row[slot], self._row[hole]
            self._slot[self._row[hole]], self._slot[self._row[slot]] = hole, slot

    def _copy(self, sources: list[int], targets: list[int]) -> None:
        """Copy source slots into target slots, all at once."""
        if not sources:
            return
        self._buffers.move(sources, targets)
        self._length[targets] = self._length[sources]
        self._pending[targets] = self._pending[sources]
        if self._hidden is not None:
            self._hidden[targets] = self._hidden[sources]
