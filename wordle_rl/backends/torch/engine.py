"""The rollout engine's model on torch, over any decoder-only transformers model, and its draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import TopKLogitsWarper, TopPLogitsWarper

from wordle_rl.backends.torch.cache import SlotCache
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.grammar import Options
from wordle_rl.policy.prefix_cache import Ints
from wordle_rl.policy.sampling import Sampling


@torch.inference_mode()
def draw_tokens(
    logits: torch.Tensor, sampling: Sampling, uniforms: NDArray[np.float64]
) -> tuple[Ints, NDArray[np.float32]]:
    """Draw a token for each row: invert the row's distribution at its uniform number.

    logits: float32 [n, V]. uniforms: [n]. Returns token ids and their natural log-probabilities
    after temperature, top-k and top-p. At temperature 0 the most likely token is taken, and its
    log-probability is the one at temperature 1. Raises NotFinite.
    """
    if sampling.temperature == 0.0:
        logprobs = torch.log_softmax(logits, dim=-1)
        ids = logits.argmax(dim=-1, keepdim=True)
    else:
        logits = _mask_unlikely(logits / sampling.temperature, sampling)
        logprobs = torch.log_softmax(logits, dim=-1)
        cumulative = logprobs.exp().cumsum(dim=-1)
        total = cumulative[:, -1:]
        target = torch.from_numpy(uniforms).to(logits.device, torch.float32)[:, None] * total
        # Rounding must not reach the total, because there is no token beyond it.
        target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
        # Logits that are not finite give an index beyond the last token.
        ids = torch.searchsorted(cumulative, target, right=True).clamp(max=logits.shape[-1] - 1)
    found = _fetch(logprobs.gather(1, ids)[:, 0])
    return ids[:, 0].cpu().numpy(), found


def _fetch(logprobs: torch.Tensor) -> NDArray[np.float32]:
    """Log-probabilities as an array, once the device is done. Raises NotFinite."""
    found = logprobs.float().cpu().numpy()
    if not np.isfinite(found).all():
        raise NotFinite
    return found


def _mask_unlikely(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Logits in which every token that top-k or top-p excludes is minus infinity."""
    unread: Any = None  # the ids so far
    if sampling.top_k:
        logits = TopKLogitsWarper(sampling.top_k)(unread, logits)
    return TopPLogitsWarper(sampling.top_p)(unread, logits) if sampling.top_p < 1.0 else logits


class TorchRows:
    """A wordle_rl.policy.prefix_cache.CachedModel. Hidden states are [n, H], logits [n, V]."""

    whole = False
    draw = staticmethod(draw_tokens)

    def __init__(self, lm: CausalLM) -> None:
        self._lm, self._trunk = lm, lm.choose_rollout_trunk()
        self._cache = SlotCache(lm.device)

    @torch.inference_mode()
    def feed(self, ids: Ints, starts: Ints, last: Ints) -> torch.Tensor:
        self._cache.place(starts, ids.shape[1])
        new, ends = map(self._lm.to_array, (ids, last))
        return self._trunk.compute_last_hidden(new, ends, self._cache)

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
