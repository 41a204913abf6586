"""The rollout engine on torch, over any decoder-only transformers model.

It keeps keys and values from turn to turn, copies them for forks, and takes rows of any length.
Once a tenth of the batch has finished, finished rows are no longer computed. Works on one device.

On CUDA, waiting for the device after each token would cost more than a few tokens behind a stop
token, which nobody reads. So several tokens are drawn before anyone looks for stop tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from wordle_rl.backends.torch.answers import Answers
from wordle_rl.backends.torch.cache import Place, SlotBuffers, SlotCache
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.sampling import draw_tokens, fetch_drawn, fetch_logprobs
from wordle_rl.policy.engine import Completion
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers

_SHRINK = 0.9  # rearrange rows when at most this share of them is still decoding
_NONE = -1  # no token
_BLOCK = 8  # tokens drawn on CUDA before anyone looks for stop tokens


class TorchEngine:
    """Implements wordle_rl.policy.engine.Engine."""

    def __init__(
        self,
        lm: CausalLM,
        *,
        stop_ids: frozenset[int],
        max_context: int,
        timers: Timers | None = None,
        block: int | None = None,
    ) -> None:
        """block: tokens drawn before anyone looks for stop tokens. None: fits the device."""
        self._lm = lm
        self._block = block or (_BLOCK if lm.device.type == "cuda" else 1)
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
        ids, counts = _pad(feeds)
        hidden = self._feed_arrays(ids, counts)
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
            hidden, n = self._last_hidden(rows), len(rows)
            place = {row: i for i, row in enumerate(rows)}
            # Answers are in the order of `rows`; `at` is the row in each slot.
            at = np.array([place[row] for row in self._row[:n]])
            answers = Answers(n, sampling.max_tokens, self._stop_ids)
            while True:
                room = self._max_context - self._length[: len(at)]
                size = min(self._block, sampling.max_tokens - answers.drawn, max(room.min(), 1))
                block = slice(answers.drawn, answers.drawn + size)
                drawn = self._draw_block(hidden, sampling, uniforms[at, block])
                counted = answers.add(at, drawn, room)
                # All drawn tokens were fed but the last. A row's length counts the tokens of its
                # answer, so nobody reads the keys and values behind them.
                self._length[: len(at)] += np.maximum(counted - 1, 0)
                live = answers.are_live(at)
                ended = np.flatnonzero((counted > 0) & ~live)
                self._pending[ended] = drawn[0][ended, counted[ended] - 1]
                if not live.any():
                    return answers.complete()
                if live.sum() <= _SHRINK * len(at):
                    active = [self._row[slot] for slot in np.flatnonzero(live)]
                    self._arrange(active)
                    at = np.array([place[row] for row in self._row[: len(active)]])
                    live = np.ones(len(at), bool)
                # A finished row is computed too but keeps its length.
                ids = answers.ids[at, answers.drawn - 1][:, None]
                hidden = self._feed_arrays(ids, np.ones(len(at), np.int64))
                self._length[: len(at)] += live

    @torch.inference_mode()
    def next_logprobs(self, rows: Sequence[int]) -> NDArray[np.float32]:
        logprobs = self._lm.compute_logits(self._last_hidden(rows)).log_softmax(dim=-1)
        return fetch_logprobs(logprobs)[[self._slot[row] for row in rows]]

    def _last_hidden(self, rows: Sequence[int]) -> torch.Tensor:
        """Move rows into the first slots. Returns their hidden states [rows, H], by slot."""
        n = len(rows)
        self._arrange(list(rows))
        unfed = (self._length[:n] == 0) | (self._pending[:n] != _NONE)
        if self._hidden is None or unfed.any():
            raise ValueError("decode needs rows that were extended since they last answered")
        return self._hidden[:n]

    def _draw_block(
        self, hidden: torch.Tensor, sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw tokens [n, T] and feed all but the last, before anyone knows which of them count.

        hidden: [n, H] of slots 0, 1, ... uniforms: [n, T]. The caller updates the lengths.
        """
        n, size = uniforms.shape
        numbers = torch.from_numpy(uniforms).to(hidden.device, torch.float32)
        drawn = [draw_tokens(self._lm.compute_logits(hidden), sampling, numbers[:, 0])]
        if size > 1:
            last = torch.zeros(n, dtype=torch.long, device=hidden.device)
            place = Place.behind(self._length[:n], 1, hidden.device)
            for ahead in range(1, size):
                hidden = self._forward(drawn[-1][0][:, None], last, place)
                place = place.move(1)
                drawn.append(
                    draw_tokens(self._lm.compute_logits(hidden), sampling, numbers[:, ahead])
                )
        ids, logprobs = (torch.stack(parts, dim=1) for parts in zip(*drawn, strict=True))
        return fetch_drawn(ids, logprobs)

    def _feed_arrays(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> torch.Tensor:
        """Feed ids [n, T] as _forward does. counts: [n] tokens of each row."""
        device, (n, width) = self._lm.device, ids.shape
        new, last = (torch.from_numpy(array).to(device) for array in (ids, counts - 1))
        return self._forward(new, last, Place.behind(self._length[:n], width, device))

    def _forward(self, ids: torch.Tensor, last: torch.Tensor, place: Place) -> torch.Tensor:
        """Feed ids [n, T], padded on the right, to the rows in slots 0, 1, ...

        last: [n] index of each row's last token. Returns the hidden states [n, H] of these. The
        caller updates the lengths.
        """
        # Padding goes into the cache behind a row's tokens, so there must be room for it.
        self._buffers.reserve(len(self._row), place.end)
        cache = SlotCache(self._buffers, len(ids), place)
        return self._trunk.compute_last_hidden(ids, last, cache)

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


def _pad(feeds: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token lists as ids [n, T], padded on the right, and how many each has [n]."""
    counts = np.array([len(tokens) for tokens in feeds])
    ids = np.zeros((len(feeds), counts.max()), np.int64)
    for i, tokens in enumerate(feeds):
        ids[i, : len(tokens)] = tokens
    return ids, counts
