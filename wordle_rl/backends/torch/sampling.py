"""Draws tokens from logits on torch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.sampling import Sampling


def draw_tokens(
    logits: torch.Tensor, sampling: Sampling, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for each row: invert the row's distribution at its uniform number.

    logits: float32 [rows, V]. uniforms: float32 [rows]. Returns token ids and their natural
    log-probabilities after temperature, top-k and top-p. At temperature 0 the most likely token is
    taken, and its log-probability is the one at temperature 1. Nothing waits for the device.
    """
    if sampling.temperature == 0.0:
        logprobs = torch.log_softmax(logits, dim=-1)
        ids = logits.argmax(dim=-1, keepdim=True)
    else:
        logits = _mask_unlikely(logits / sampling.temperature, sampling)
        logprobs = torch.log_softmax(logits, dim=-1)
        cumulative = logprobs.exp().cumsum(dim=-1)
        total = cumulative[:, -1:]
        target = uniforms[:, None] * total
        # Rounding must not reach the total, because there is no token beyond it.
        target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
        # Logits that are not finite give an index beyond the last token.
        ids = torch.searchsorted(cumulative, target, right=True).clamp(max=logits.shape[-1] - 1)
    return ids[:, 0], logprobs.gather(1, ids)[:, 0]


def fetch_drawn(
    ids: torch.Tensor, logprobs: torch.Tensor
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Drawn tokens as arrays, once the device is done. Raises NotFinite."""
    found = fetch_logprobs(logprobs)
    return ids.cpu().numpy(), found


def fetch_logprobs(logprobs: torch.Tensor) -> NDArray[np.float32]:
    """Log-probabilities as an array, once the device is done. Raises NotFinite."""
    found = logprobs.float().cpu().numpy()
    if not np.isfinite(found).all():
        raise NotFinite
    return found


def _mask_unlikely(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Logits in which every token that top-k or top-p excludes is minus infinity."""
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
