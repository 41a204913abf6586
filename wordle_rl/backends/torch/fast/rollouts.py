"""Decoder layers written out for rollouts on CPU: as transformers, but faster. See layers.py.

One product gives queries, keys and values, another gives gate and up, and rotations come from a
table. The last layer computes only the tokens whose hidden states are wanted.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from wordle_rl.backends.torch.fast.layers import (
    Norms,
    embed,
    find_head_norms,
    find_rotations,
    find_window,
    list_kinds,
)
from wordle_rl.backends.torch.fast.merged_lora import join
from wordle_rl.backends.torch.fast.norms import normalize

_MOST_SCORES = 2**26  # torch's kernel, which stores no scores, computes larger tables


class FastTrunk:
    """A trunk that can_be_fast, with its current weights. Use it until their next update."""

    @torch.no_grad()
    def __init__(self, trunk: Any) -> None:
        self._trunk, self._kinds = trunk, list_kinds(trunk)
        self._num_positions, self._tables = 0, {}
        self._layers = [_Layer(layer) for layer in trunk.layers]

    def compute_last_hidden(
        self, ids: torch.Tensor, last: torch.Tensor, cache: Any
    ) -> torch.Tensor:
        """As CausalLM.compute_last_hidden."""
        self._extend_rotations(cache.capacity)
        x = embed(self._trunk, ids)  # [N, T, H], added to in place
        lookups = {kind: self._look_up(kind, cache) for kind in set(self._kinds)}
        for index, (layer, kind) in enumerate(zip(self._layers, self._kinds, strict=True)):
            cos, sin, bias = lookups[kind]
            query, key, value = layer.project(x, cos, sin)
            keys, values = cache.update(key, value, index)
            if index + 1 == len(self._layers) and ids.shape[1] > 1:
                # From here on only the wanted tokens matter.
                rows = torch.arange(len(ids))
                x, query = x[rows, last][:, None], query[rows, last][:, None]
                bias = bias.expand(len(ids), -1, -1)[rows, last][:, None]
            layer.finish(x, _attend(query, keys, values, bias, layer.scale))
        return normalize(self._trunk.norm, x[:, -1])

    def _extend_rotations(self, count: int) -> None:
        """Extend the tables of cosines and sines [positions, 1, D] of each kind of layers."""
        if self._num_positions < count:
            positions = torch.arange(count)
            self._num_positions = count
            self._tables = {
                kind: find_rotations(self._trunk, kind, positions) for kind in set(self._kinds)
            }

    def _look_up(self, kind: str, cache: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What layers of a kind need of the new tokens: cosines, sines [N or 1, T, 1, D], a bias.

        The bias is float32 [N or 1, T, K], minus infinity where a token does not see a key.
        """
        cos, sin = self._tables[kind]
        distance = cache.positions[..., None] - torch.arange(cache.capacity)
        hidden, window = distance < 0, find_window(self._trunk, kind)
        if window is not None:
            hidden |= distance >= window
        bias = torch.zeros(distance.shape).masked_fill_(hidden, -torch.inf)
        return cos[cache.positions], sin[cache.positions], bias


class _Layer:
    """A decoder layer whose matrix products are joined."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        self._qkv = join([part.weight for part in parts])
        biased = attention.q_proj.bias is not None  # Llama's are not
        self._qkv_bias = join([part.bias for part in parts]) if biased else None
        self._gate_up = join([mlp.gate_proj.weight, mlp.up_proj.weight])
        self._out, self._down = attention.o_proj.weight, mlp.down_proj.weight
        self._norms, self._activate = Norms.of(layer), mlp.act_fn
        self._head_norms = find_head_norms(attention)
        self._dim, self.scale = attention.head_dim, attention.scaling
        self._kv_heads = attention.k_proj.out_features // self._dim

    def project(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [N, T, heads, D], and keys and values [N, heads, T, D] as in the cache."""
        qkv = F.linear(normalize(self._norms.before_attention, x), self._qkv, self._qkv_bias)
        qkv = qkv.view(*x.shape[:2], -1, self._dim)
        qk, value = qkv.tensor_split([-self._kv_heads], dim=2)
        if self._head_norms:
            parts = qk.tensor_split([-self._kv_heads], dim=2)
            pieces = [normalize(*pair) for pair in zip(self._head_norms, parts, strict=True)]
            qk = torch.cat(pieces, dim=2)
        # Rolling by half brings each number's partner to its place. The sine holds the sign.
        out = (qk * cos).addcmul_(qk.roll(self._dim // 2, -1), sin)
        query, key = out.tensor_split([-self._kv_heads], dim=2)
        return query, key.transpose(1, 2), value.transpose(1, 2)

    def finish(self, x: torch.Tensor, output: torch.Tensor) -> None:
        """Add the results of attention and the feed-forward part to x [N, T, H], in place."""
        _add(x, F.linear(output, self._out), self._norms.after_attention)
        inner = F.linear(normalize(self._norms.before_mlp, x), self._gate_up)
        gate, up = inner.chunk(2, dim=-1)
        _add(x, F.linear(self._activate(gate).mul_(up), self._down), self._norms.after_mlp)


def _add(x: torch.Tensor, product: torch.Tensor, norm: nn.Module | None) -> None:
    x.add_(product if norm is None else normalize(norm, product))


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attention [N, T, heads * D].

    query: [N, T, heads, D]. keys, values: [N, kv heads, K, D]. bias: float32 [N or 1, T, K], minus
    infinity where a token does not see a key.
    """
    n, tokens, heads, dim = query.shape
    groups, length = keys.shape[1:3]
    query = query.transpose(1, 2)
    if n * heads * tokens * length > _MOST_SCORES:
        mask = bias[:, None].to(query.dtype)
        out = F.scaled_dot_product_attention(
            query, keys, values, mask, scale=scale, enable_gqa=True
        )
    else:
        # One product serves all heads that share keys. Softmax in float32, as in transformers.
        rows = query.reshape(n * groups, -1, dim)
        scores = torch.bmm(rows, keys.flatten(0, 1).transpose(1, 2)).view(n, heads, tokens, length)
        weights = torch.add(bias[:, None], scores, alpha=scale).softmax(-1).to(query.dtype)
        out = torch.bmm(weights.view(n * groups, -1, length), values.flatten(0, 1))
    return out.view(n, heads, tokens, dim).transpose(1, 2).reshape(n, tokens, heads * dim)
