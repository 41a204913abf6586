"""Models made for these prompts, before any training, and their tokenizers.

Each phrase of the prompts is one token, and any other printable ASCII text is spelt out. Of a guess
each letter is one token, or the whole guess is. transformers builds and saves the models, so they
load like Qwen2.5 and Llama.
"""

import itertools
import re
import string
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import MARKS
from wordle_rl.policy.settings import Vocabulary
from wordle_rl.prompts.styles import PHRASES, PLACES_LEGEND
from wordle_rl.words.lists import load_words

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = (
    "<|pad|>",
    "<|unk|>",
    "<|im_start|>",
    "<|im_end|>",
    # The text before and after each message is one token. The end of an answer has a token of its
    # own, because the policy draws it.
    "<|im_start|>system\n",
    "<|im_start|>user\n",
    "\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    "\n<|im_start|>assistant\n",
)
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_BLANKS = ("Ġ", "Ċ")  # blank and newline in byte-level tokenizers such as Qwen's
TAGS = ("<think>", "</think>", "<guess>", "</guess>")
# Standard deviation of the vectors that words begin with. The usual 0.02 would leave the logits of
# 12,972 words too close to each other for layers that have learnt nothing yet.
_PART_SCALE = 0.2
_WHOLE_TEXTS = "<guess>[a-z]{5}</guess>| ?[a-z][1-5][x✓-]|✓"  # texts that may be one token


def build_tokenizer(vocabulary: Vocabulary = "letters") -> PreTrainedTokenizerFast:
    """The tokenizer of the embedded models. Each phrase of the prompts is a token.

    vocabulary: with letters, a guess is spelt. With words, each allowed word of the original game
    has a token for the whole guess, such as <guess>crane</guess>, and feedback in the style
    `places` has a token for each letter with its place and mark, such as c1x.
    """
    texts: list[str] = []
    extras: tuple[str, ...] = (*TAGS, *PHRASES, "✓")
    if vocabulary == "words":
        triples = itertools.product(string.ascii_lowercase, enumerate("12345"), MARKS)
        texts = [guess_text(word) for word in load_words().allowed]
        for letter, (i, place), mark in triples:
            piece = f"{letter}{place}{mark}"
            texts.append(f" {piece}" if i > 0 else piece)
        texts.append("✓")
        extras = (*PHRASES, PLACES_LEGEND)  # an added token would split the whole ones
    characters = [*string.ascii_lowercase, *string.ascii_uppercase, *string.digits]
    characters += [*string.punctuation, *_BLANKS]
    forms = (_BYTES.pre_tokenize_str(text)[0][0] for text in texts)  # as tokenizers write bytes
    tokens = [*SPECIAL, *extras, *characters, *forms]
    ids = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    core = Tokenizer(
        models.BPE(vocab=ids, merges=[], unk_token="<|unk|>", ignore_merges=bool(texts))
    )
    split = pre_tokenizers.Split(Regex(_WHOLE_TEXTS), "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, _BYTES]) if texts else letters
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    core.add_tokens([AddedToken(t, normalized=False, special=False) for t in extras])
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
    seed: int = 0,
    vocabulary: Vocabulary = "letters",
) -> Qwen2ForCausalLM | LlamaForCausalLM:
    """An untrained model whose weights are drawn from the seed: a Qwen2, with words a Llama."""
    # transformers gives every Qwen2 the tokenizer of Qwen, which splits a guess into letters.
    has_words = vocabulary == "words"
    config: Any = (LlamaConfig if has_words else Qwen2Config)(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config) if has_words else Qwen2ForCausalLM(config)


def build_untrained(
    *, vocabulary: Vocabulary = "letters", seed: int = 0, **shape: Any
) -> tuple[Any, PreTrainedTokenizerFast]:
    """An untrained model and its tokenizer. shape: the sizes of build_model."""
    tokenizer = build_tokenizer(vocabulary)
    model = build_model(vocab_size=len(tokenizer), vocabulary=vocabulary, seed=seed, **shape)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    if vocabulary == "words":
        _compose_embeddings(model, tokenizer, seed)
    return model, tokenizer


def _compose_embeddings(model: Any, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
    """Let each whole word, and each letter with its mark, begin as the sum of what it is made of.

    Each letter, each letter in each place, each mark, and being a guess are parts with a random
    vector. Words with common letters then begin alike, so a lesson about one is a lesson about all.
    """
    table: torch.Tensor = model.model.embed_tokens.weight.data
    generator = torch.Generator().manual_seed(seed)
    draw = cache(lambda part: torch.randn(table.shape[1], generator=generator))
    # The order of get_vocab() differs from one process to the next.
    for text, row in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        if parts := _name_parts(text):
            table[row] = torch.stack([*map(draw, parts)]).sum(0)
            table[row] *= _PART_SCALE


def _name_parts(text: str) -> list[str]:
    """Names of what a whole token is made of, such as c1 and c, or an empty list."""
    if (match := re.fullmatch("Ġ?([a-z])([1-5])(.+)", text)) is not None:
        letter, place, mark = match.groups()
        return [letter + place, letter, mark]
    if (guess := re.fullmatch("<guess>([a-z]{5})</guess>", text)) is not None:
        places = [letter + str(i) for i, letter in enumerate(guess[1], 1)]
        return ["guess", *places, *sorted(set(guess[1]))]
    return []


def save_untrained(folder: Path, **settings: Any) -> Path:
    """Write an untrained model and its tokenizer to a folder that AutoModelForCausalLM loads.

    settings: see build_untrained.
    """
    model, tokenizer = build_untrained(**settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
