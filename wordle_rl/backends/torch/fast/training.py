"""Qwen2's and Llama's layers written out for training on CPU: as transformers, but faster.

Tokens are rows of one matrix. The opening that all sequences share is computed once, and padding
fills each sequence only up to the longest. Norms, rotations and attention have backward passes of
their own, because autograd's many small operations take longer than the matrix products. The last
layer computes only the places whose hidden states are wanted.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from wordle_rl.backends.torch.fast.merged_lora import MergedLinear, multiply
from wordle_rl.backends.torch.fast.norms import RmsNorm


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the tokens of some sequences are in one matrix of M = opening + rows * width tokens.

    The shared opening comes first, then `width` tokens of each sequence.
    """

    opening: int
    rows: int
    width: int
    cos: torch.Tensor  # [M, 1, D]
    sin: torch.Tensor  # [M, 1, D], the first half of each head's numbers negated
    bias: torch.Tensor  # [width, opening + width], minus infinity where a token sees no key
    opening_bias: torch.Tensor  # [opening, opening], the same for the opening's own tokens


def compute_states(
    trunk: Any, ids: torch.Tensor, wanted: torch.Tensor, *, checkpointing: bool = False
) -> torch.Tensor:
    """Hidden states [P, H] at the wanted places of sequences, in order of row and place.

    trunk: of a model that can_be_fast. ids: [N, T], padded on the right. wanted: bool [N, T - 1],
    False from the last token of each sequence on. checkpointing: whether the backward pass computes
    each layer again.
    """
    opening = count_shared(ids, wanted)
    places = wanted[:, opening:].flatten().nonzero()[:, 0] + opening  # of the layout's tokens
    inner = ids[:, opening:-1]
    layout = _lay_out(trunk, opening, *inner.shape)
    x = F.embedding(torch.cat([ids[0, :opening], inner.flatten()]), trunk.embed_tokens.weight)
    compute: Any = _compute_layer
    if checkpointing:
        compute = partial(checkpoint, compute, use_reentrant=False, preserve_rng_state=False)
    for layer in trunk.layers[:-1]:
        x = compute(layer, x, layout)
    return _normalize(trunk.norm, compute(trunk.layers[-1], x, layout, places))


def count_shared(ids: torch.Tensor, wanted: torch.Tensor) -> int:
    """How many tokens all sequences begin with, before the first wanted place."""
    # At least one token is left for each sequence.
    shared = (ids[:, :-2] == ids[0, :-2]).all(0) & ~wanted[:, :-1].any(0)
    return int(shared.long().cumprod(0).sum())


def _lay_out(trunk: Any, opening: int, rows: int, width: int) -> Layout:
    weight = trunk.embed_tokens.weight
    places = torch.arange(opening + width)
    cos, sin = trunk.rotary_emb(weight, places[None])
    half = sin.shape[-1] // 2
    sin = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
    hidden = places > places[:, None]
    bias = torch.zeros_like(hidden, dtype=weight.dtype).masked_fill_(hidden, -torch.inf)
    cos, sin = (  # of the opening once, of the places behind it for each row
        torch.cat([table[0, :opening], table[0, opening:].repeat(rows, 1)])[:, None]
        for table in (cos, sin)
    )
    return Layout(
        opening=opening, rows=rows, width=width, cos=cos, sin=sin, bias=bias[opening:],
        opening_bias=bias[:opening, :opening],
    )  # fmt: skip


def _compute_layer(
    layer: Any, x: torch.Tensor, layout: Layout, places: torch.Tensor | None = None
) -> torch.Tensor:
    """The tokens [M, H] after a decoder layer, or only those at some places."""
    attention, mlp = layer.self_attn, layer.mlp
    normed = _normalize(layer.input_layernorm, x)
    joined = multiply(normed, attention.q_proj, attention.k_proj, attention.v_proj)
    attended = _attend(joined.view(len(x), -1, attention.head_dim), layout, attention)
    if places is not None:
        attended, x = attended[places], x[places]
    x = _add_product(x, attended, attention.o_proj)
    normed = _normalize(layer.post_attention_layernorm, x)
    gate, up = multiply(normed, mlp.gate_proj, mlp.up_proj).chunk(2, dim=-1)
    return _add_product(x, F.silu(gate) * up, mlp.down_proj)


def _add_product(x: torch.Tensor, rows: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    if isinstance(layer, MergedLinear):
        return x + multiply(rows, layer)
    return torch.addmm(x, rows, layer.weight.T)


def _attend(joined: torch.Tensor, layout: Layout, attention: Any) -> torch.Tensor:
    """Attention [M, heads * D] of joined queries, keys and values [M, heads + 2 kv, D]."""
    kv = attention.k_proj.out_features // attention.head_dim
    turned: Any = _Rotate.apply(joined, layout.cos, layout.sin, kv)
    opening, rows = turned.split([layout.opening, layout.rows * layout.width])
    rows = rows.view(layout.rows, layout.width, *joined.shape[1:])
    if not layout.opening:
        return _Attend.apply(rows, None, layout.bias, kv).flatten(0, 1)
    of_opening = _Attend.apply(opening[None], None, layout.opening_bias, kv)
    of_rows = _Attend.apply(rows, opening, layout.bias, kv)
    return torch.cat([of_opening.flatten(0, 1), of_rows.flatten(0, 1)])


def _normalize(norm: Any, x: torch.Tensor) -> Any:
    return RmsNorm.apply(x, norm.weight, norm.variance_epsilon)


class _Rotate(torch.autograd.Function):
    """Rotates queries and keys of [M, heads + 2 kv, D] by their positions, in place."""

    @staticmethod
    def forward(
        ctx: Any, joined: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, kv: int
    ) -> torch.Tensor:
        ctx.mark_dirty(joined)
        ctx.save_for_backward(cos, sin)
        ctx.kv = kv
        part = joined[:, :-kv]
        # Rolling by half brings each number's partner to its place. The sine holds the sign.
        partner = part.roll(part.shape[-1] // 2, -1)
        part.mul_(cos).addcmul_(partner, sin)
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        out = grads[0].clone()
        part = out[:, : -ctx.kv]
        partner = part.roll(part.shape[-1] // 2, -1)
        part.mul_(cos).addcmul_(partner, sin, value=-1.0)
        return out, None, None, None


class _Attend(torch.autograd.Function):
    """Causal attention [N, T, heads * D] of rows [N, T, heads + 2 kv, D] of rotated queries, keys
    and values. Each row also sees the keys of an opening [P, heads + 2 kv, D].
    """

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, opening: torch.Tensor | None, bias: torch.Tensor, kv: int
    ) -> torch.Tensor:
        n, width, joined, dim = rows.shape
        heads, before = joined - 2 * kv, bias.shape[1] - width
        query = _group(rows[:, :, :heads], kv).mul_(dim**-0.5)
        both = rows.new_empty(2, n, kv, before + width, dim)  # keys and values
        both[..., before:, :] = _split_heads(rows[:, :, heads:])
        if opening is not None:
            both[..., :before, :] = _split_heads(opening[None, :, heads:])
        keys, values = both.flatten(1, 2)
        scores = torch.bmm(query, keys.transpose(1, 2))
        scores.view(n, heads, *bias.shape).add_(bias)
        weights = scores.softmax(-1)
        ctx.save_for_backward(query, keys, values, weights)
        ctx.shape, ctx.kv, ctx.opening = rows.shape, kv, opening is not None
        return _ungroup(torch.bmm(weights, values), n, width).flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        query, keys, values, weights = ctx.saved_tensors
        n, width, joined, dim = ctx.shape
        heads, kv = joined - 2 * ctx.kv, ctx.kv
        grad = _group(grads[0].view(n, width, heads, dim), kv)
        out = grad.new_empty(ctx.shape)
        both = grad.new_empty(2, *keys.shape)
        torch.bmm(weights.transpose(1, 2), grad, out=both[1])
        by_weight = torch.bmm(grad, values.transpose(1, 2))
        by_score = torch.ops.aten._softmax_backward_data(by_weight, weights, -1, weights.dtype)
        torch.bmm(by_score.transpose(1, 2), query, out=both[0])
        out[:, :, :heads] = _ungroup(torch.bmm(by_score, keys).mul_(dim**-0.5), n, width)
        both = both.unflatten(1, (n, kv))
        before = keys.shape[1] - width
        _split_heads(out[:, :, heads:]).copy_(both[..., before:, :])
        if not ctx.opening:
            return out, None, None, None
        opening = grad.new_zeros(before, joined, dim)
        _split_heads(opening[None, :, heads:]).copy_(both[..., :before, :].sum(1, keepdim=True))
        return out, opening, None, None


def _group(query: torch.Tensor, kv: int) -> torch.Tensor:
    """Queries [N, T, heads, D] as new rows [N * kv, heads / kv * T, D] that share keys."""
    n, _, _, dim = query.shape
    grouped = query.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    return grouped.view(n * kv, -1, dim)


def _ungroup(grouped: torch.Tensor, n: int, width: int) -> torch.Tensor:
    """[N, T, heads, D] of what _group made."""
    return grouped.view(n, -1, width, grouped.shape[-1]).transpose(1, 2)


def _split_heads(pairs: torch.Tensor) -> torch.Tensor:
    """Keys and values [N, T, 2 kv, D] as [2, N, kv, T, D]."""
    return pairs.unflatten(2, (2, -1)).permute(2, 0, 3, 1, 4)
