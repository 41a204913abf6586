"""Finds a model's config.json without its weights: in a folder, in the hub's cache, or in a table.

The table holds what the public config.json of well-known models says about sizes, so that memory
can be planned before anything is downloaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig

from wordle_rl.backends.adapter_checks import find_base_name
from wordle_rl.backends.adapter_conversion import Form, is_adapter, read_adapter_config
from wordle_rl.backends.hub import notice_offline
from wordle_rl.backends.load_errors import explain_load_errors
from wordle_rl.backends.torch.adapters import find_base
from wordle_rl.backends.torch.load import read_config
from wordle_rl.policy.model_names import locate
from wordle_rl.policy.settings import MAIN, UNTRAINED, LoraSettings, ModelSettings

_QWEN2 = {"model_type": "qwen2", "vocab_size": 151_936, "tie_word_embeddings": True}
_QWEN_05B = {
    **_QWEN2, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2,
}  # fmt: skip
_QWEN_15B = {
    **_QWEN2, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2,
}  # fmt: skip
_QWEN_3B = {
    **_QWEN2, "hidden_size": 2048, "intermediate_size": 11_008, "num_hidden_layers": 36,
    "num_attention_heads": 16, "num_key_value_heads": 2,
}  # fmt: skip
_QWEN3_17B = {
    "model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "tie_word_embeddings": True,
}  # fmt: skip
_GEMMA_1B = {
    "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152,
    "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
}  # fmt: skip
_GEMMA_4B = {
    "model_type": "gemma3", "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text", "vocab_size": 262_208, "hidden_size": 2560,
        "intermediate_size": 10_240, "num_hidden_layers": 34, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024,
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
        "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
        "vision_use_head": False,
    },
}  # fmt: skip
_GPT2 = {
    "model_type": "gpt2", "vocab_size": 50_257, "n_positions": 1024, "n_embd": 768, "n_layer": 12,
    "n_head": 12,
}  # fmt: skip
_SMOLLM2 = {
    "model_type": "llama", "vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536,
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}  # fmt: skip
_4_BIT = {"quantization": {"group_size": 64, "bits": 4}}

# Source: huggingface.co/<name>/blob/main/config.json of each. Only sizes, not what computes.
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _QWEN_05B,
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN_15B,
    "Qwen/Qwen2.5-3B-Instruct": _QWEN_3B,
    "Qwen/Qwen3-1.7B": _QWEN3_17B,
    "google/gemma-3-1b-it": _GEMMA_1B,
    "google/gemma-3-4b-it": _GEMMA_4B,
    "mlx-community/gemma-3-4b-it-bf16": _GEMMA_4B,
    "mlx-community/gemma-3-4b-it-4bit": {**_GEMMA_4B, **_4_BIT},
    "openai-community/gpt2": _GPT2,
    "gpt2": _GPT2,
    "HuggingFaceTB/SmolLM2-135M-Instruct": _SMOLLM2,
}


def find_config(settings: ModelSettings, form: Form = "peft") -> tuple[Any, LoraSettings | None]:
    """A model's transformers config, and the form of its adapters if it has any.

    form: in which an adapter is saved. Reads no weights. Uses the network only for a hub model that
    is neither in the cache nor in KNOWN. Raises ConfigError in one line when there is no config, or
    one of a model that cannot be trained.
    """
    if settings.path == UNTRAINED:
        return _describe_untrained(settings), settings.lora
    base, revision, lora = settings.location, settings.revision, settings.lora
    if is_adapter(Path(base)):
        (base, revision), lora = _find_base(Path(base), form), _read_lora(Path(base), form)
    cached = None if Path(base).is_dir() else _find_cached(base, revision)
    if base in KNOWN and revision == MAIN and not Path(base).is_dir() and cached is None:
        return build_config(base), lora
    if cached is None:
        notice_offline(base)
    else:  # a folder, so that nothing asks the hub whether there is a newer one
        base, revision = str(cached.parent), MAIN
    with explain_load_errors(base, on_disk=Path(base).is_dir()):
        return read_config(settings, base, revision), lora


def _find_base(folder: Path, form: Form) -> tuple[str, str]:
    """Location and revision of the model under an adapter."""
    if form == "peft":
        return find_base(folder)
    return locate(find_base_name(folder, form)), MAIN


def build_config(name: str) -> Any:
    """The transformers config of a model in KNOWN."""
    facts = dict(KNOWN[name])
    return AutoConfig.for_model(facts.pop("model_type"), **facts)


def _find_cached(location: str, revision: str) -> Path | None:
    """config.json of a hub model in the cache."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(location, "config.json", revision=revision)
    return Path(found) if isinstance(found, str) else None


def _describe_untrained(settings: ModelSettings) -> Any:
    from wordle_rl.backends.tiny_model import build_model, build_tokenizer

    tokenizer = build_tokenizer(settings.shape.get("vocabulary", "letters"))
    return build_model(vocab_size=len(tokenizer), **settings.shape).config


def _read_lora(folder: Path, form: Form) -> LoraSettings:
    """The form of the adapter in a folder."""
    described = read_adapter_config(folder)
    if form == "peft":
        return LoraSettings(
            rank=described["r"], alpha=described["lora_alpha"], targets=described["target_modules"]
        )
    inner = described["lora_parameters"]
    # mlx-lm's multimodal models have another name before their layers.
    keys = [key.removeprefix("language_model.") for key in inner["keys"]]
    return LoraSettings(rank=inner["rank"], alpha=inner["scale"] * inner["rank"], targets=keys)
