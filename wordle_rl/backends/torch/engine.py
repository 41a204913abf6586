"""The rollout engine's model on torch, over any decoder-only transformers model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from wordle_rl.backends.engine import CachedEngine, Ints
from wordle_rl.backends.torch.cache import Place, SlotBuffers, SlotCache
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.sampling import draw_tokens, fetch_drawn, fetch_logprobs
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers


def build_engine(
    lm: CausalLM, *, stop_ids: frozenset[int], max_context: int, timers: Timers | None = None
) -> CachedEngine:
    """An engine with an empty cache on the model's current weights."""
    return CachedEngine(TorchRows(lm), stop_ids=stop_ids, max_context=max_context, timers=timers)


class TorchRows:
    """Implements wordle_rl.backends.engine.Model. Hidden states are [n, H]."""

    def __init__(self, lm: CausalLM) -> None:
        self._lm, self._trunk = lm, lm.choose_rollout_trunk()
        self._buffers = SlotBuffers(lm.layers)

    @torch.inference_mode()
    def feed(self, ids: Ints, starts: Ints, last: Ints) -> torch.Tensor:
        device = self._lm.device
        place = Place.behind(starts, ids.shape[1], device)
        # Padding goes into the cache behind a row's tokens, so there must be room for it.
        self._buffers.reserve(len(ids), place.end)
        cache = SlotCache(self._buffers, len(ids), place)
        new, ends = (torch.from_numpy(array).to(device) for array in (ids, last))
        return self._trunk.compute_last_hidden(new, ends, cache)

    @torch.inference_mode()
    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._buffers.reserve(max(targets) + 1, 0)
        self._buffers.move(list(sources), list(targets))

    def pick(self, hidden: torch.Tensor, index: Sequence[int]) -> torch.Tensor:
        return hidden[list(index)]

    @torch.inference_mode()
    def draw(
        self, hidden: torch.Tensor, sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float32]]:
        numbers = torch.from_numpy(uniforms).to(hidden.device, torch.float32)
        return fetch_drawn(*draw_tokens(self._lm.compute_logits(hidden), sampling, numbers))

    @torch.inference_mode()
    def score(self, hidden: torch.Tensor) -> NDArray[np.float32]:
        return fetch_logprobs(self._lm.compute_logits(hidden).log_softmax(dim=-1))
