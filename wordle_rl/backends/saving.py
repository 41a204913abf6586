"""Makes folders that transformers 5 wrote readable for transformers 4 and mlx-lm, too.

Both would take a rotary base of 10,000 without a word, because transformers 5 writes the base where
they do not look. What a base says about drawing, such as a repetition penalty, is not written: the
model was trained and measured without it.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import read_object, write_json

GENERATION = "generation_config.json"
_IDS = ("bos_token_id", "pad_token_id")


def save_tokenizer(inner: Any, folder: Path) -> None:
    """Write a transformers tokenizer."""
    inner.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    config = read_object(file)
    if config.get("tokenizer_class") == "TokenizersBackend":  # which only transformers 5 knows
        write_json(file, config | {"tokenizer_class": "PreTrainedTokenizerFast"})


def save_model(model: Any, folder: Path, stops: Collection[int]) -> None:
    """Write a transformers model. stops: the ids that end an answer."""
    model.save_pretrained(folder)
    for file in folder.glob("*.safetensors"):  # made for its user alone, unlike all other files
        file.chmod((folder / "config.json").stat().st_mode)
    save_generation(folder, model.generation_config.to_dict(), stops)
    add_older_form(folder)


def save_generation(folder: Path, config: Mapping[str, Any], stops: Collection[int]) -> None:
    """Write generation_config.json with special ids alone.

    config: of a model, or of its generation. stops: the ids that end an answer.
    """
    ids = {name: config[name] for name in _IDS if config.get(name) is not None}
    write_json(folder / GENERATION, {"eos_token_id": sorted(stops)} | ids)


def add_older_form(folder: Path) -> None:
    """Add to a model's config.json how positions are rotated, in the older form."""
    config = read_object(folder / "config.json")
    if "text_config" in config:
        text = config["text_config"]
        config = config | {"text_config": text | describe_rotation(text)}
    write_json(folder / "config.json", config | describe_rotation(config))


def describe_rotation(config: dict[str, Any]) -> dict[str, Any]:
    """The entries of a config.json that say in the older form how positions are rotated.

    Empty for a config in that form.
    """
    rope = config.get("rope_parameters") or {}
    full, entries = rope, {}
    if {"full_attention", "sliding_attention"} <= rope.keys():
        full = rope["full_attention"]
        entries["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in full:
            entries[name] = full[name]
    kind, scaling = full.get("rope_type", "default"), {k: full[k] for k in full if k not in entries}
    if kind == "longrope":  # has three entries, one of them under another name
        entries["original_max_position_embeddings"] = full["original_max_position_embeddings"]
        scaling = {"type": kind} | {k: full[k] for k in ("short_factor", "long_factor")}
    return entries if kind == "default" else entries | {"rope_scaling": scaling}
