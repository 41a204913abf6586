"""What is written out for training and for rollouts, and how the families differ in it.

Qwen2 and Llama differ in one thing: Llama's queries, keys and values have no biases. Qwen3 and
Gemma 3 normalise queries and keys. Gemma 3 also scales its embedding, normalises what attention and
the feed-forward part give, and most of its layers see a window, with rotations of their own.
LoRA models come here with merged matrices. All other models (other rotations, hooks, more biases)
use transformers' forward pass.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import GELUTanh, SiLUActivation
from transformers.models.gemma3 import modeling_gemma3 as gemma3
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from wordle_rl.backends.sizes import is_written_out
from wordle_rl.backends.torch.fast.merged_lora import MergedLinear
from wordle_rl.backends.torch.fast.norms import GemmaNorm

_PARTS = {
    qwen2.Qwen2Model,
    qwen2.Qwen2DecoderLayer,
    qwen2.Qwen2Attention,
    qwen2.Qwen2MLP,
    qwen2.Qwen2RMSNorm,
    qwen2.Qwen2RotaryEmbedding,
    qwen3.Qwen3Model,
    qwen3.Qwen3DecoderLayer,
    qwen3.Qwen3Attention,
    qwen3.Qwen3MLP,
    qwen3.Qwen3RMSNorm,
    qwen3.Qwen3RotaryEmbedding,
    llama.LlamaModel,
    llama.LlamaDecoderLayer,
    llama.LlamaAttention,
    llama.LlamaMLP,
    llama.LlamaRMSNorm,
    llama.LlamaRotaryEmbedding,
    gemma3.Gemma3TextModel,
    gemma3.Gemma3DecoderLayer,
    gemma3.Gemma3Attention,
    gemma3.Gemma3MLP,
    gemma3.Gemma3RMSNorm,
    gemma3.Gemma3RotaryEmbedding,
    gemma3.Gemma3TextScaledWordEmbedding,
    GemmaNorm,
    GELUTanh,
    SiLUActivation,
    nn.Linear,
    MergedLinear,
    nn.Embedding,
    nn.ModuleList,
}


def can_be_fast(trunk: nn.Module) -> bool:
    """Whether the layers written out compute the same as the trunk's own forward pass."""
    modules = list(trunk.modules())
    return (
        # Adapters, quantisation and parametrisations replace these classes with others.
        {type(module) for module in modules} <= _PARTS
        and not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        and is_written_out(trunk.config)
    )


class Norms(NamedTuple):
    """The norms of a decoder layer; None where a family has none."""

    before_attention: nn.Module
    after_attention: nn.Module | None
    before_mlp: nn.Module
    after_mlp: nn.Module | None

    @classmethod
    def of(cls, layer: Any) -> "Norms":
        first, second = layer.input_layernorm, layer.post_attention_layernorm
        if isinstance(layer, gemma3.Gemma3DecoderLayer):
            return cls(
                first, second, layer.pre_feedforward_layernorm, layer.post_feedforward_layernorm
            )
        return cls(first, None, second, None)


def find_head_norms(attention: Any) -> tuple[nn.Module, nn.Module] | None:
    """The norms of each head's queries and keys, if there are some."""
    has_norms = hasattr(attention, "q_norm")
    return (attention.q_norm, attention.k_norm) if has_norms else None


def list_kinds(trunk: Any) -> list[str]:
    """The kind of attention of each layer, as transformers names it."""
    kinds = getattr(trunk.config, "layer_types", None)
    return list(kinds or ["full_attention"] * len(trunk.layers))


def find_window(trunk: Any, kind: str) -> int | None:
    """How many tokens a layer of a kind sees, its own among them. None: all."""
    return trunk.config.sliding_window if kind == "sliding_attention" else None


def embed(trunk: Any, ids: torch.Tensor) -> torch.Tensor:
    """The layers' input [..., H], as a new tensor. Unlike transformers', padding has a gradient."""
    x = F.embedding(ids, trunk.embed_tokens.weight)
    if isinstance(trunk.embed_tokens, gemma3.Gemma3TextScaledWordEmbedding):
        return x * trunk.embed_tokens.embed_scale.to(x.dtype)
    return x


def find_rotations(
    trunk: Any, kind: str, places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [M, 1, D] at places [M], the first half of each head's sines negated."""
    args = (kind,) if isinstance(trunk.rotary_emb, gemma3.Gemma3RotaryEmbedding) else ()
    cos, sin = trunk.rotary_emb(trunk.embed_tokens.weight, places[None], *args)
    half = sin.shape[-1] // 2
    sin = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
    return cos[0, :, None], sin[0, :, None]
