"""Corrects a model folder's config.json for mlx-lm 0.32.

transformers 5 writes rotary bases and sliding layers in a form that mlx-lm does not read. mlx-lm
would use its own defaults without a warning. This file knows the families of models that tests have
compared with transformers, and refuses models that mlx-lm would compute differently. Plain Python.
"""

from __future__ import annotations

from typing import Any

from wordle_rl.backends.saving import describe_rotation
from wordle_rl.runs.instantiate import ConfigError

_FAMILIES = ("gemma3", "gemma3_text", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
_WINDOWED = ("mistral", "phi3")  # where a window needs no further switch


def correct_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return new values for entries of a config.json that mlx-lm would misread.

    Raises ConfigError for a model that needs something mlx-lm does not implement.
    """
    kind = config.get("model_type")
    if kind not in _FAMILIES:
        raise ConfigError(
            f"the architecture must be one of {', '.join(_FAMILIES)} with backend=mlx, not {kind}"
        )
    if kind == "gemma3":
        text = {**config["text_config"]}
        text |= _correct_gemma(text)
        # Without this entry mlx-lm assumes the size of the released models.
        sizes = {"vocab_size": text["vocab_size"]} if "vocab_size" in text else {}
        return {**sizes, "text_config": text}
    return _correct_gemma(config) if kind == "gemma3_text" else _correct_others(config)


def _correct_others(config: dict[str, Any]) -> dict[str, Any]:
    kind = config["model_type"]
    if config.get("use_sliding_window") or (kind in _WINDOWED and config.get("sliding_window")):
        raise ConfigError(
            f"backend=mlx: mlx-lm's {kind} has no sliding window, this model uses one"
        )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    turn = rope.get("rope_type", rope.get("type", "default"))
    if turn in ("longrope", "su") or (kind == "phi3" and turn != "default"):
        raise ConfigError(f"backend=mlx: mlx-lm's {kind} rotates otherwise than {turn} says")
    return describe_rotation(config)


def _correct_gemma(config: dict[str, Any]) -> dict[str, Any]:
    for name in ("final_logit_softcapping", "attn_logit_softcapping", "attention_bias"):
        if config.get(name):
            raise ConfigError(
                f"backend=mlx: mlx-lm's Gemma 3 has no {name}, this model has {config[name]}"
            )
    out = describe_rotation(config)
    if layers := config.get("layer_types"):
        pattern = next(
            (i for i, kind in enumerate(layers, 1) if kind == "full_attention"), len(layers) + 1
        )
        regular = [
            "full_attention" if i % pattern == 0 else "sliding_attention"
            for i in range(1, len(layers) + 1)
        ]
        if pattern > len(layers) or layers != regular:
            raise ConfigError(
                "backend=mlx: mlx-lm's Gemma 3 needs every n-th layer to see all tokens, not "
                f"{layers}"
            )
        out["sliding_window_pattern"] = pattern
    return out
