"""The rollout engine's model on torch, over any decoder-only transformers model, and its draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import TopKLogitsWarper, TopPLogitsWarper

from wordle_rl.backends.torch.cache import SlotCache
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.grammar import Options
from wordle_rl.policy.prefix_cache import Ints
from wordle_rl.policy.sampling import Sampling

_BLOCK = 128  # tokens whose shares are added up at first
_BYTES = 2**24  # of logits that are drawn from at once, so that they stay in the processor's cache


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
        chosen = logits.argmax(dim=-1, keepdim=True)
        return chosen[:, 0].cpu().numpy(), _fetch(logits.log_softmax(-1).gather(1, chosen)[:, 0])
    scale = 1.0 / sampling.temperature
    if sampling.top_k or sampling.top_p < 1.0:
        logits, scale = _mask_unlikely(logits * scale, sampling), 1.0
    # MPS has no float64.
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    numbers = torch.from_numpy(uniforms).to(logits.device, exact)[:, None]
    rows = max(_BYTES // (logits.element_size() * logits.shape[-1]), 1)
    parts = zip(logits.split(rows), numbers.split(rows), strict=True)
    drawn = [_draw_rows(own, scale, some) for own, some in parts]
    ids, logprobs = (torch.cat(found)[:, 0] for found in zip(*drawn, strict=True))
    return ids.cpu().numpy(), _fetch(logprobs)


def _draw_rows(
    logits: torch.Tensor, scale: float, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for each row [n, V] of logits times scale, at uniforms [n, 1].

    The vocabulary is cut into blocks, whose running sums say which block a uniform number falls
    into. Only that block is added up token by token. No row depends on the others.
    Returns ids and log-probabilities, both [n, 1].
    """
    size = logits.shape[-1]
    greatest = logits.amax(-1, keepdim=True)
    shares = logits.new_empty(len(logits), -(-size // _BLOCK), _BLOCK)
    table = shares.view(len(logits), -1)
    table[:, size:] = 0.0
    table = torch.sub(logits, greatest, out=table[:, :size])
    if scale != 1.0:
        table *= scale
    table.exp_()
    sums = shares.sum(-1).to(uniforms.dtype).cumsum(-1)
    target = uniforms * sums[:, -1:]
    block = _find(sums, target)
    target -= nn.functional.pad(sums, (1, 0)).gather(1, block)
    inside = shares[torch.arange(len(logits), device=logits.device), block[:, 0]]
    place = _find(inside.to(sums.dtype).cumsum(-1), target)
    ids = (block * _BLOCK + place).clamp(max=size - 1)
    chosen = (logits.gather(1, ids) - greatest).to(sums.dtype) * scale
    return ids, chosen - sums[:, -1:].log()


def _find(sums: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The first place [n, 1] in rising sums [n, K] that exceeds a target [n, 1]."""
    # Rounding must not reach the total, because there is no place beyond it.
    target = torch.minimum(target, sums[:, -1:] * (1.0 - torch.finfo(sums.dtype).eps))
    # Sums that are not finite give a place beyond the last one.
    return torch.searchsorted(sums, target, right=True).clamp(max=sums.shape[-1] - 1)


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
