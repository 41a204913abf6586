"""Decoder layers written out for training on CPU: as transformers, but faster. See layers.py.

Tokens are rows of one matrix, one row for each distinct beginning of a sequence, without padding.
Norms, rotations and attention have backward passes of their own, because autograd's many small
operations take longer than the matrix products. The last layer computes only the rows whose hidden
states are wanted.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from wordle_rl.backends.torch.fast.layers import (
    Norms,
    embed,
    find_head_norms,
    find_rotations,
    find_window,
    list_kinds,
)
from wordle_rl.backends.torch.fast.merged_lora import MergedLinear, multiply
from wordle_rl.backends.torch.fast.norms import RmsNorm, read_norm
from wordle_rl.policy.batch import Blocks


class Layout(NamedTuple):
    """How M rows attend in layers of one kind, in G blocks of B that see K keys each."""

    cos: torch.Tensor  # [M, 1, D]
    sin: torch.Tensor  # [M, 1, D], the first half of each head's numbers negated
    path: torch.Tensor  # [G, K - B] the rows before a block that it sees
    bias: torch.Tensor  # [G, 1, B, K], minus infinity where a row does not see a key


def compute_states(
    trunk: Any, blocks: Blocks, wanted: torch.Tensor, *, checkpointing: bool = False
) -> torch.Tensor:
    """Hidden states [P, H] of some rows.

    trunk: one that can_be_fast. wanted: [P] numbers of rows. checkpointing: whether the
    backward pass computes each layer again.
    """
    kinds = list_kinds(trunk)
    layouts = {kind: _lay_out(trunk, blocks, kind) for kind in set(kinds)}
    x = embed(trunk, torch.from_numpy(blocks.tokens))
    compute: Any = _compute_layer
    if checkpointing:
        compute = partial(checkpoint, compute, use_reentrant=False, preserve_rng_state=False)
    for layer, kind in zip(trunk.layers[:-1], kinds, strict=False):
        x = compute(layer, x, layouts[kind])
    return _normalize(trunk.norm, compute(trunk.layers[-1], x, layouts[kinds[-1]], wanted))


def _lay_out(trunk: Any, blocks: Blocks, kind: str) -> Layout:
    visible, depths = blocks.visible, blocks.depths
    window = find_window(trunk, kind)
    if window is not None:
        distance = depths.reshape(len(visible), -1, 1) - depths[blocks.keys][:, None]
        visible = visible & (distance < window)
    visible = torch.from_numpy(visible)[:, None]
    bias = trunk.embed_tokens.weight.new_zeros(visible.shape).masked_fill_(~visible, -torch.inf)
    path = torch.from_numpy(blocks.keys[:, : -visible.shape[2]])
    return Layout(*find_rotations(trunk, kind, torch.from_numpy(depths)), path, bias)


def _compute_layer(
    layer: Any, x: torch.Tensor, layout: Layout, positions: torch.Tensor | None = None
) -> torch.Tensor:
    """The tokens [M, H] after a decoder layer, or only those at some positions."""
    attention, mlp, norms = layer.self_attn, layer.mlp, Norms.of(layer)
    inputs = _normalize(norms.before_attention, x)
    qkv = multiply(inputs, attention.q_proj, attention.k_proj, attention.v_proj)
    output = _attend(qkv.view(len(x), -1, attention.head_dim), layout, attention)
    if positions is not None:
        output, x = output[positions], x[positions]
    x = _add_product(x, output, attention.o_proj, norms.after_attention)
    inputs = _normalize(norms.before_mlp, x)
    gate, up = multiply(inputs, mlp.gate_proj, mlp.up_proj).chunk(2, dim=-1)
    return _add_product(x, mlp.act_fn(gate) * up, mlp.down_proj, norms.after_mlp)


def _add_product(
    x: torch.Tensor, rows: torch.Tensor, layer: nn.Linear, norm: nn.Module | None
) -> torch.Tensor:
    if norm is not None:
        return x + _normalize(norm, multiply(rows, layer))
    if isinstance(layer, MergedLinear):
        return x + multiply(rows, layer)
    return torch.addmm(x, rows, layer.weight.T)


def _attend(qkv: torch.Tensor, layout: Layout, attention: Any) -> torch.Tensor:
    """Attention [M, heads * D] of joined queries, keys and values [M, heads + 2 kv, D]."""
    kv = attention.k_proj.out_features // attention.head_dim
    if norms := find_head_norms(attention):
        *parts, value = qkv.split([qkv.shape[1] - 2 * kv, kv, kv], dim=1)
        pieces = [_normalize(*pair) for pair in zip(norms, parts, strict=True)]
        qkv = torch.cat([*pieces, value], dim=1)
    rows: Any = _Rotate.apply(qkv, layout.cos, layout.sin, kv)
    output: Any = _Attend.apply(rows, layout.path, layout.bias, kv, attention.scaling)
    return output


def _normalize(norm: Any, x: torch.Tensor) -> Any:
    return RmsNorm.apply(x, *read_norm(norm))


class _Rotate(torch.autograd.Function):
    """Rotates queries and keys of [M, heads + 2 kv, D] by their positions, in place."""

    @staticmethod
    def forward(
        ctx: Any, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, kv: int
    ) -> torch.Tensor:
        ctx.mark_dirty(qkv)
        ctx.save_for_backward(cos, sin)
        ctx.kv = kv
        part = qkv[:, :-kv]
        # Rolling by half brings each number's partner to its place. The sine holds the sign.
        partner = part.roll(part.shape[-1] // 2, -1)
        part.mul_(cos).addcmul_(partner, sin)
        return qkv

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        cos, sin = ctx.saved_tensors  # the gradient turns back, by the negative angle
        out = grads[0].clone()
        part = out[:, : -ctx.kv]
        partner = part.roll(part.shape[-1] // 2, -1)
        part.mul_(cos).addcmul_(partner, sin, value=-1.0)
        return out, None, None, None


class _Attend(torch.autograd.Function):
    """Attention [M, heads * D] of rows [M, heads + 2 kv, D] of rotated queries, keys and values.

    path, bias: as in Layout. The backward pass gathers again what a block reads, because keeping it
    would take several times the memory of the rows.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, path: torch.Tensor, bias: torch.Tensor, kv: int, scale: float
    ) -> torch.Tensor:
        query, keys, values = _gather(rows, path, kv, scale)
        scores = torch.bmm(query, keys.transpose(1, 2))
        scores.view(len(path), -1, *bias.shape[2:]).add_(bias)
        weights = scores.softmax(-1)
        ctx.save_for_backward(rows, path, weights)
        ctx.kv, ctx.scale = kv, scale
        return _ungroup(torch.bmm(weights, values), len(path), bias.shape[2]).flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        rows, path, weights = ctx.saved_tensors
        out = torch.empty_like(rows)
        query_out, pair = out[:, : -2 * ctx.kv], out[:, -2 * ctx.kv :]
        grad = _group(grads[0].view(len(path), -1, *query_out.shape[1:]), ctx.kv)
        blocks = _gather(rows, path, ctx.kv, ctx.scale)
        dq, dkv = _attention_gradients(grad, weights, *blocks)
        dq.mul_(ctx.scale)
        query_out.copy_(_ungroup(dq, len(path), len(rows) // len(path)))
        dkv = dkv.unflatten(1, (len(path), ctx.kv)).permute(1, 3, 0, 2, 4)  # [G, K, 2, kv, D]
        pair.copy_(dkv[:, path.shape[1] :].reshape(pair.shape))
        path_grads = dkv[:, : path.shape[1]].reshape(-1, *pair.shape[1:])
        pair.index_add_(0, path.flatten(), path_grads)
        return out, None, None, None, None


def _attention_gradients(
    grad: torch.Tensor,
    weights: torch.Tensor,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of the scaled queries, and of keys and values [2, G * kv, K, D].

    grad: of the weighted values. The others are as in the forward pass.
    """
    dkv = grad.new_empty(2, *keys.shape)
    torch.bmm(weights.transpose(1, 2), grad, out=dkv[1])
    by_weight = torch.bmm(grad, values.transpose(1, 2))
    by_score = torch.ops.aten._softmax_backward_data(by_weight, weights, -1, weights.dtype)
    torch.bmm(by_score.transpose(1, 2), query, out=dkv[0])
    return torch.bmm(by_score, keys), dkv


def _gather(
    rows: torch.Tensor, path: torch.Tensor, kv: int, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The scaled queries [G * kv, heads / kv * B, D], keys and values [G * kv, K, D] of blocks."""
    (groups, prefix), (count, heads, dim) = path.shape, rows.shape
    block = rows.view(groups, count // groups, heads, dim)
    stack = rows.new_empty(2, groups, kv, prefix + block.shape[1], dim)
    stack[..., :prefix, :] = _split_heads(rows[:, -2 * kv :][path])
    stack[..., prefix:, :] = _split_heads(block[:, :, -2 * kv :])
    keys, values = stack.flatten(1, 2)
    return _group(block[:, :, : -2 * kv], kv).mul_(scale), keys, values


def _group(query: torch.Tensor, kv: int) -> torch.Tensor:
    """Queries [G, B, heads, D] as new rows [G * kv, heads / kv * B, D] that share keys."""
    n, _, _, dim = query.shape
    rows = query.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    return rows.view(n * kv, -1, dim)


def _ungroup(rows: torch.Tensor, groups: int, size: int) -> torch.Tensor:
    """[G * B, heads, D] of what _group made."""
    return rows.view(groups, -1, size, rows.shape[-1]).transpose(1, 2).flatten(0, 1)


def _split_heads(pairs: torch.Tensor) -> torch.Tensor:
    """Keys and values [G, K, 2 kv, D] as [2, G, kv, K, D]."""
    return pairs.unflatten(2, (2, -1)).permute(2, 0, 3, 1, 4)
