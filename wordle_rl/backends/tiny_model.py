"""The embedded model: a Qwen2 with 3.2 million weights, and a tokenizer made for these prompts.

Each letter is one token, each phrase of the prompts is one token, and any other printable ASCII
text is spelt out. transformers builds and saves the model, so it loads like Qwen2.5.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from wordle_rl.prompts.styles import PHRASES

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = (
    "<|pad|>", "<|unk|>", "<|im_start|>", "<|im_end|>",
    # The text before and after each message is one token. The end of an answer has a token of its
    # own, because the policy draws it.
    "<|im_start|>system\n", "<|im_start|>user\n", "\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n", "\n<|im_start|>assistant\n",
)  # fmt: skip
_BLANKS = ("Ġ", "Ċ")  # blank and newline in byte-level tokenizers such as Qwen's
TAGS = ("<think>", "</think>", "<guess>", "</guess>")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the embedded model, with at most 256 tokens."""
    characters = [*string.ascii_lowercase, *string.ascii_uppercase, *string.digits]
    characters += [*string.punctuation, *_BLANKS]
    added = (*TAGS, *PHRASES, "✓")
    tokens = [*SPECIAL, *added, *characters]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<|unk|>"))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    core.add_tokens([AddedToken(t, normalized=False, special=False) for t in added])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        unk_token="<|unk|>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(
    *,
    vocab_size: int,
    hidden_size: int = 256,
    layers: int = 4,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate_size: int = 768,
    max_length: int = 1024,
    seed: int = 0,
) -> Qwen2ForCausalLM:
    """An untrained Qwen2 whose weights are drawn from the seed."""
    config = Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate_size,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def save_untrained(folder: Path, **shape: Any) -> Path:
    """Write an untrained model and its tokenizer to a folder that AutoModelForCausalLM loads."""
    tokenizer = build_tokenizer()
    model = build_model(vocab_size=len(tokenizer), **shape)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
