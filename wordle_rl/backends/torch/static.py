"""Decoding with static shapes, so that a pass is one CUDA graph.

A pass that feeds one token to each row launches a thousand small kernels and more, and Python takes
longer to launch them than a GPU to compute them. A CUDA graph launches all at once, but always with
the same shapes and the same memory. So rows are filled up to a power of two, the cache stays from
step to step, and a graph is used until the cache grows. A filling row has token 0 in the last
column of the cache, which is kept free of the tokens that count.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import SlotCache, TorchRows
from wordle_rl.policy.prefix_cache import Ints
from wordle_rl.runs.instantiate import ConfigError

# Takes the function that computes a pass, and gives one that runs its kernels again.
Capture = Callable[[Callable[[], torch.Tensor]], Callable[[], torch.Tensor]]

_STEP = 128  # tokens; the cache grows seldom, because then all graphs are lost
_TOLERANCE = 0.02  # of hidden states: what bfloat16 may change, as a share of their norm


def capture_graph(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A CUDA graph of a function that reads and writes the same memory at each call."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function()

    def replay() -> torch.Tensor:
        graph.replay()
        return output

    return replay


class StaticRows(TorchRows):
    """TorchRows whose passes of one token a row are captured once and replayed."""

    def __init__(
        self, lm: CausalLM, capture: Capture = capture_graph, *, step: int = _STEP
    ) -> None:
        """step: tokens, of which the cache's capacity is a multiple."""
        self._lm = self._trunk = lm
        self._cache = SlotCache(lm.device, step=step)
        self._capture = capture
        self._passes: dict[int, _Pass] = {}  # by rows
        self._size = (0, 0)  # of the cache that they write to

    @torch.inference_mode()
    def feed(self, ids: Ints, starts: Ints, last: Ints) -> torch.Tensor:
        count, width = ids.shape
        rows = 1 << (count - 1).bit_length()
        self._cache.reserve(rows, int(starts.max()) + width + 1)
        if self._size != (self._cache.slots, self._cache.capacity):
            self._passes.clear()  # they would write where the cache was
            self._size = (self._cache.slots, self._cache.capacity)
        if width > 1:
            return super().feed(ids, starts, last)
        if rows not in self._passes:
            self._passes[rows] = _Pass(self._lm, self._cache, rows)
        return self._passes[rows].run(ids[:, 0], starts, self._capture)


class _Pass:
    """One token for each of so many rows, always in the same memory."""

    def __init__(self, lm: CausalLM, cache: SlotCache, rows: int) -> None:
        self._lm, self._cache = lm, cache
        self._inputs = torch.zeros(2, rows, 1, dtype=torch.long, device=lm.device)
        self._last = torch.zeros(rows, dtype=torch.long, device=lm.device)
        self._replay: Callable[[], torch.Tensor] | None = None
        self._is_checked = False

    def run(self, tokens: Ints, starts: Ints, capture: Capture) -> torch.Tensor:
        """Hidden states [n, H] of tokens [n] at positions [n]. Valid until the next run."""
        inputs = np.zeros((2, len(self._last), 1), np.int64)
        inputs[1] = self._cache.capacity - 1
        inputs[:, : len(tokens), 0] = tokens, starts
        self._inputs.copy_(torch.from_numpy(inputs))
        if self._replay is None:
            hidden = self._compute()
            self._replay = capture(self._compute)
            return hidden[: len(tokens)]
        if not self._is_checked:  # with other inputs than the capture had
            expected = self._compute()[: len(tokens)]
            _check_equal(self._replay()[: len(tokens)], expected)
            self._is_checked = True
        return self._replay()[: len(tokens)]

    def _compute(self) -> torch.Tensor:
        ids, positions = self._inputs
        self._cache.place_at(positions)
        return self._lm.compute_last_hidden(ids, self._last, self._cache)


def _check_equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise ConfigError unless a replayed pass gave the hidden states [n, H] of a plain one."""
    difference: Any = (actual - expected).float().norm() / expected.float().norm()
    # Where a model is not finite, who draws from it says so.
    if expected.isfinite().all() and not difference <= _TOLERANCE:
        raise ConfigError(
            "backend.cuda_graphs must be false here: a pass that was replayed gave other numbers"
        )
