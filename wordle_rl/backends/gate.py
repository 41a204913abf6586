"""One gate for what a model's folder says, whichever backend loads it.

transformers, peft and mlx-lm ignore entries and weights that they have no place for, and fill in
entries that are missing. The model would then be another one than the folder describes, so each
such case is refused by name.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from wordle_rl.runs.files import read_text
from wordle_rl.runs.instantiate import ConfigError

# What older files of some families have, and no forward pass reads. transformers leaves out what it
# knows of its families by itself, such as heads that predict several tokens.
_UNUSED_WEIGHTS = re.compile(r"(rotary_emb\.inv_freq|attn\.(masked_)?bias|position_ids)$")
_OFF_VALUES = (None, False, 0, "", "none", "default", [], {})  # values that switch nothing on
# Entries of a config.json that change no number of a forward pass. Weights decide about biases. The
# last line is read under another name.
_NO_EFFECT = re.compile(
    r"_.*|auto_map|adapters|(block|bits|ep)_size|.*bias|n_ctx|seq_length|max_.*|model_.*|.*_name|"
    r"is_llama_config|task_specific_params|summary_.*|quantization.*|compression_config|.*_labels|"
    r".*(unsloth|transformers|version|token|dtype|attn_implementation|flash|cache|drop|init|loss|"
    r"train|checkpoint|language|license|task|image|audio|video|vision).*|"
    r"sliding_window_pattern|partial_rotary_factor|rotary_pct|rope_.*|no_rope_layer_interval"
)
# Entries without which a library would take its own value, each under one of its names. The first
# Llamas have no rotary base, and all libraries mean the same one there. Gemma 3 with images has
# none of these in its released files.
_HEADS, _BASE = ("num_attention_heads", "n_head"), ("rope_parameters", "rope_theta")
_NORM = ("rms_norm_eps", "layer_norm_epsilon")
_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function")
_WINDOW, _KINDS = ("sliding_window",), ("layer_types", "sliding_window_pattern")
_BASICS = (_HEADS, _NORM, _ACTIVATION)
_NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "gemma3_text": (*_BASICS, _BASE, _WINDOW, _KINDS, ("query_pre_attn_scalar",)),
    "gpt2": _BASICS,
    "llama": _BASICS,
    "mistral": (*_BASICS, _BASE, _WINDOW),
    "olmo3": (*_BASICS, _BASE, _WINDOW, _KINDS),
    "smollm3": (*_BASICS, _BASE, ("no_rope_layers", "no_rope_layer_interval")),
    **dict.fromkeys(("olmo2", "phi3", "qwen2", "qwen3"), (*_BASICS, _BASE)),
}


def check_config(location: str, given: dict[str, Any]) -> None:
    """Raise ConfigError unless a config.json has what its family needs, and nothing unknown.

    given: its entries as they are in the file. Families that transformers does not know pass.
    """
    kind = str(given.get("model_type"))
    if kind not in CONFIG_MAPPING:
        return
    config: Any = CONFIG_MAPPING[kind].from_dict({**given})
    file = f"model.path={location}: its config.json"
    for entries in _NEEDS.get(kind, ()):
        if not given.keys() & {*entries}:
            raise ConfigError(f"{file} lacks {entries[0]}, which libraries would fill in")
    for name, value in _find_unknown(given, config):
        raise ConfigError(
            f"{file} has {name}={value!r}, which a model of type {kind} does not use: take the "
            "entry out of a copy if it changes nothing, or name the right model_type"
        )
    if getattr(config.get_text_config(), "use_bidirectional_attention", None):
        raise ConfigError(f"{file} has use_bidirectional_attention: such a model cannot answer")


def _find_unknown(file_config: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    """Entries that are switched on and that a family's config class keeps without knowing them."""
    parts = [(file_config, config)]
    if isinstance(text := file_config.get("text_config"), dict):
        parts.append((text, config.get_text_config()))
    for entries, instance in parts:
        names = type(instance).attribute_map
        fields = {*type(instance).__dataclass_fields__, *names, *names.values()}
        for name, value in entries.items():
            is_extra = name in vars(instance) and name not in fields and _is_on(value)
            if is_extra and not _NO_EFFECT.fullmatch(name) and not _reads(instance, name):
                yield name, value


def _reads(config: Any, entry: str) -> bool:
    """Whether the code of a family reads an entry, as some do that its config class does not."""
    files = Path(inspect.getfile(type(config))).parent.glob("*.py")
    reads = re.compile(rf"config\.{re.escape(entry)}\b|config, \"{re.escape(entry)}\"")
    return any(reads.search(read_text(file)) for file in files)


def _is_on(value: Any) -> bool:
    """Whether a value could change what is computed. A factor of 1 and plain layers cannot."""
    if isinstance(value, list) and {"full_attention"}.issuperset(map(str, value)):
        return False
    return value not in _OFF_VALUES and (value is True or value != 1)


def check_weights(location: str, unused: Iterable[str]) -> None:
    """Raise ConfigError if a model has no place for some weights of its file.

    unused: the names of the weights that the library left out.
    """
    if rest := sorted(name for name in unused if not _UNUSED_WEIGHTS.search(name)):
        raise ConfigError(
            f"model.path={location} has {len(rest)} weights for which its config.json has no place,"
            f" such as {rest[0]}: the config.json is another model's"
        )


def check_quantization(location: str, given: dict[str, Any], *, mlx: bool) -> None:
    """Raise ConfigError for a model that the other backend's library rounded."""
    method = (given.get("quantization_config") or {}).get("quant_method")
    if "quantization" in given and not method and not mlx:
        raise ConfigError(f"model.path={location} was quantised by MLX: it needs backend=mlx")
    if method == "bitsandbytes" and mlx:
        raise ConfigError(
            f"model.path={location} was quantised by bitsandbytes: it needs backend=lightning"
        )


def check_files(location: str) -> None:
    """Raise ConfigError if a folder has two sets of weights, of which libraries take either."""
    folder = Path(location)
    shards = sorted(file.name for file in folder.glob("model-*-of-*.safetensors"))
    if shards and (folder / "model.safetensors").is_file():
        raise ConfigError(
            f"model.path={location} has model.safetensors and {shards[0]}: remove one of the two "
            "sets of weights"
        )
