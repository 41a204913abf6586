"""The families of models that torch trains, and what differs between them.

A family is here once the tests have compared it with transformers' own forward pass. Plain Python,
apart from the config that transformers read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wordle_rl.runs.instantiate import ConfigError

FAMILIES = ("gemma3_text", "gpt2", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
_WRAPPERS = {"gemma3": "gemma3_text"}  # models with images -> their language model
_LEARNED_PLACES = ("gpt2",)  # families with one embedding for each place
# Rotations that change for the whole batch once its longest row passes the trained length.
_BATCH_ROTATIONS = ("dynamic", "longrope")


def check_family(location: str, config: Any, written: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the architecture can be trained.

    config: the model's config as transformers reads it. written: the entries of its config.json.
    """
    kind = config.model_type
    if kind in _WRAPPERS and not isinstance(written.get("text_config"), Mapping):
        raise ConfigError(
            f"model.path={location}: its config.json has no text_config, so it describes no "
            "language model: name a folder with the whole model"
        )
    language = config.get_text_config().model_type
    if _WRAPPERS.get(kind, kind) != language or language not in FAMILIES:
        known = ", ".join(sorted({*FAMILIES, *_WRAPPERS}))
        raise ConfigError(
            f"model.path={location} must have one of the architectures {known}, not {kind}"
        )


def check_length(location: str, config: Any, max_context: int) -> None:
    """Raise ConfigError when games of this many tokens are too long for the model.

    config: of the language model. Other models compute any length, if not well.
    """
    most = last_place(config)
    if most is None:
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type") not in _BATCH_ROTATIONS:
            return
        most = rope.get("original_max_position_embeddings") or config.max_position_embeddings
    else:
        most += 1
    if max_context > most:
        raise ConfigError(
            f"model.max_context must be at most {most} with model.path={location}, which has no "
            f"places beyond, not {max_context}"
        )


def last_place(config: Any) -> int | None:
    """The last place in the text that a model has an embedding for, None if it computes places."""
    if config.model_type in _LEARNED_PLACES:
        return config.max_position_embeddings - 1
    return None
