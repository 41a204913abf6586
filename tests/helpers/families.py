"""A small random model of each family that the backends train, and a batch for them."""

from pathlib import Path
from typing import Any

import torch
import transformers as hf

from tests.helpers.tiny import batch_of, qwen_like_tokenizer, sharpen

VOCAB = 340
WINDOW = 6
SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 256}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
KINDS = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
TEXT = {**WIDE, **IDS, **KINDS, "head_dim": 8, "query_pre_attn_scalar": 8}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
CONFIGS = {
    "gemma3": lambda: hf.Gemma3Config(
        text_config=TEXT,
        vision_config=VISION,
        mm_tokens_per_image=4,
        image_token_index=3,
        boi_token_index=4,
        eoi_token_index=5,
        tie_word_embeddings=True,
    ),
    "gemma3_text": lambda: hf.Gemma3TextConfig(**TEXT),
    "gpt2": lambda: hf.GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=256, **IDS
    ),
    "llama": lambda: hf.LlamaConfig(**WIDE, **IDS),
    "llama with biases": lambda: hf.LlamaConfig(**WIDE, **IDS, attention_bias=True, mlp_bias=True),
    "mistral": lambda: hf.MistralConfig(**WIDE, **IDS, sliding_window=WINDOW),
    "olmo2": lambda: hf.Olmo2Config(**WIDE, **IDS),
    "olmo3": lambda: hf.Olmo3Config(**WIDE, **IDS, **KINDS),
    "phi3": lambda: hf.Phi3Config(**WIDE, **IDS),
    "qwen2": lambda: hf.Qwen2Config(**WIDE, **IDS),
    "qwen3": lambda: hf.Qwen3Config(**WIDE, **IDS, head_dim=8),
    "smollm2": lambda: hf.LlamaConfig(**WIDE, **IDS, tie_word_embeddings=True, rope_theta=1e5),
    "smollm3": lambda: hf.SmolLM3Config(**WIDE, **IDS, no_rope_layers=[1, 0]),
}
BATCH = batch_of(
    [(list(range(10, 34)), [0] * 9 + [1] * 15), (list(range(40, 55)), [0] * 7 + [1] * 8)],
    [1.0, -0.5],
)


def build(family: str) -> Any:
    """A model of the family with large random weights, so that each token matters."""
    config: Any = CONFIGS[family]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        if family == "gemma3":
            return sharpen(hf.Gemma3ForConditionalGeneration(config), 4.0)
        return sharpen(hf.AutoModelForCausalLM.from_config(config), 4.0)


def save_family(folder: Path, family: str = "llama") -> Path:
    """A model of the family with its tokenizer, as a user would have it on disk."""
    build(family).save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)
    return folder
