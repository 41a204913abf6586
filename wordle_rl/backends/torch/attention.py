"""Attention for short sequences on CPU, where torch's fused kernel has a slow backward pass.

Computes attention as three plain operations on grouped heads. Above a few hundred keys, and on
every other device, transformers' own sdpa does it.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "wordle_rl_short"
_LONGEST = 512  # keys; a larger score matrix is not worth its memory


def short_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in the form that transformers calls.

    query: [N, H, Q, D]. key, value: [N, H / g, K, D]. attention_mask: bool [N or 1, 1, Q, K] or
    None. Returns [N, Q, H, D] and None.
    """
    n, heads, queries, dim = query.shape
    groups, keys = key.shape[1], key.shape[2]
    plain = dropout == 0.0 and kwargs.get("softcap") is None
    if attention_mask is None or keys > _LONGEST or not plain:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    scale = dim**-0.5 if scaling is None else scaling
    grouped = (query * scale).reshape(n, groups, heads // groups * queries, dim)
    scores = (grouped @ key.transpose(-1, -2)).view(n, heads, queries, keys)
    scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1).view(n, groups, -1, keys)
    return (weights @ value).view(n, heads, queries, dim).transpose(1, 2), None


def use_short_attention(model: Any) -> None:
    """Make a transformers model on CPU use short_attention."""
    AttentionInterface.register(NAME, short_attention)
    model.set_attn_implementation(NAME)
