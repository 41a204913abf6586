"""Qwen2's and Llama's layers written out for rollouts on CPU: as transformers, but faster.

One product gives queries, keys and values, another gives gate and up, and rotations come from a
table. The last layer computes only the tokens whose hidden states are wanted. Llama differs in one
thing: its queries, keys and values have no biases. LoRA models come here with merged matrices. All
other models (sliding windows, other rotations, hooks, more biases) use transformers' forward pass.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2

from wordle_rl.backends.sizes import is_written_out
from wordle_rl.backends.torch.fast.merged_lora import MergedLinear, join

_PARTS = {
    qwen2.Qwen2ForCausalLM,
    qwen2.Qwen2Model,
    qwen2.Qwen2DecoderLayer,
    qwen2.Qwen2Attention,
    qwen2.Qwen2MLP,
    qwen2.Qwen2RMSNorm,
    qwen2.Qwen2RotaryEmbedding,
    llama.LlamaForCausalLM,
    llama.LlamaModel,
    llama.LlamaDecoderLayer,
    llama.LlamaAttention,
    llama.LlamaMLP,
    llama.LlamaRMSNorm,
    llama.LlamaRotaryEmbedding,
    SiLUActivation,
    nn.Linear,
    MergedLinear,
    nn.Embedding,
    nn.ModuleList,
}
_MOST_SCORES = 2**26  # torch's kernel, which stores no scores, computes larger tables


def can_be_fast(model: nn.Module) -> bool:
    """Whether the layers written out compute the same as the model's own forward pass."""
    modules = list(model.modules())
    return (
        # Adapters, quantisation and parametrisations replace these classes with others.
        {type(module) for module in modules} <= _PARTS
        and not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        and is_written_out(model.config)
    )


class FastQwen2:
    """The trunk of a Qwen2 or Llama with its current weights. Use it until their next update."""

    @torch.no_grad()
    def __init__(self, trunk: Any) -> None:
        self._embedding: torch.Tensor = trunk.embed_tokens.weight
        self._rotary = trunk.rotary_emb
        self._cos = self._sin = self._embedding.new_zeros(0, 1, 1)
        self._norm = trunk.norm
        self._layers = [_Layer(layer) for layer in trunk.layers]

    def compute_last_hidden(
        self, ids: torch.Tensor, last: torch.Tensor, cache: Any
    ) -> torch.Tensor:
        """As CausalLM.compute_last_hidden."""
        self._extend_rotations(cache.capacity)
        x = F.embedding(ids, self._embedding)  # [N, T, H], added to in place
        places = cache.positions
        cos, sin = self._cos[places], self._sin[places]  # [N or 1, T, 1, D]
        bias = torch.zeros(*places.shape, cache.capacity)  # [N or 1, T, K]
        bias.masked_fill_(torch.arange(cache.capacity) > places[..., None], -torch.inf)
        for index, layer in enumerate(self._layers):
            query, key, value = layer.project(x, cos, sin)
            keys, values = cache.update(key, value, index)
            if index + 1 == len(self._layers) and ids.shape[1] > 1:
                # From here on only the wanted tokens matter.
                rows = torch.arange(len(ids))
                x, query = x[rows, last][:, None], query[rows, last][:, None]
                bias = bias.expand(len(ids), -1, -1)[rows, last][:, None]
            layer.finish(x, _attend(query, keys, values, bias))
        return _normalize(self._norm, x[:, -1])

    def _extend_rotations(self, most: int) -> None:
        """Extend the tables of cosines and sines [places, 1, D]. Half of the sines are negated."""
        if len(self._cos) < most:
            cos, sin = self._rotary(self._embedding, torch.arange(most)[None])
            half = sin.shape[-1] // 2
            self._cos = cos[0, :, None]
            self._sin = torch.cat([-sin[0, :, None, :half], sin[0, :, None, half:]], dim=-1)


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
        self._before, self._between = layer.input_layernorm, layer.post_attention_layernorm
        self._dim = attention.head_dim
        self._kv_heads = attention.k_proj.out_features // self._dim

    def project(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [N, T, heads, D], and keys and values [N, heads, T, D] as in the cache."""
        joined = F.linear(_normalize(self._before, x), self._qkv, self._qkv_bias)
        joined = joined.view(*x.shape[:2], -1, self._dim)
        unrotated, value = joined.tensor_split([-self._kv_heads], dim=2)
        # Rolling by half brings each number's partner to its place. The sine holds the sign.
        rotated = (unrotated * cos).addcmul_(unrotated.roll(self._dim // 2, -1), sin)
        query, key = rotated.tensor_split([-self._kv_heads], dim=2)
        return query, key.transpose(1, 2), value.transpose(1, 2)

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> None:
        """Add the results of attention and the feed-forward part to x [N, T, H], in place."""
        x.add_(F.linear(attended, self._out))
        gate, up = F.linear(_normalize(self._between, x), self._gate_up).chunk(2, dim=-1)
        x.add_(F.linear(F.silu(gate).mul_(up), self._down))


def _normalize(norm: Any, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Attention [N, T, heads * D].

    query: [N, T, heads, D]. keys, values: [N, kv heads, K, D]. bias: float32 [N or 1, T, K], minus
    infinity where a token does not see a key.
    """
    n, tokens, heads, dim = query.shape
    groups, most = keys.shape[1:3]
    query = query.transpose(1, 2)
    if n * heads * tokens * most > _MOST_SCORES:
        mask = bias[:, None].to(query.dtype)
        out = F.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=True)
    else:
        # One product serves all heads that share keys. Softmax in float32, as in transformers.
        grouped = query.reshape(n * groups, -1, dim)
        scores = torch.bmm(grouped, keys.flatten(0, 1).transpose(1, 2)).view(n, heads, tokens, most)
        weights = torch.add(bias[:, None], scores, alpha=dim**-0.5).softmax(-1).to(query.dtype)
        out = torch.bmm(weights.view(n * groups, -1, most), values.flatten(0, 1))
    return out.view(n, heads, tokens, dim).transpose(1, 2).reshape(n, tokens, heads * dim)
