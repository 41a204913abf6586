"""LoRA adapters on disk, in PEFT's form or mlx-lm's: checks, and conversion bit for bit.

    PEFT    adapter_model.safetensors   ....layers.N.MODULE.lora_A.weight [r, in], lora_B [out, r]
    mlx-lm  adapters.safetensors        ....layers.N.MODULE.lora_a [in, r], lora_b [r, out]

The module converts plain LoRA on linear layers of Qwen2 and Gemma 3 (text or multimodal, with the
names of transformers 4 and 5) and refuses anything else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file

from wordle_rl.backends.saved_weights import check_fit, read_weights
from wordle_rl.policy.lineage import stages_of, write_stages
from wordle_rl.policy.settings import LM_HEAD, LoraSettings, fetch_command, locate, may_be_on_hub
from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.files import (
    FolderError,
    check_all_entries,
    check_entries,
    read_object,
    write_json,
)
from wordle_rl.runs.instantiate import ConfigError

Form = Literal["peft", "mlx"]

ADAPTER = "adapter_config.json"
FILES: dict[Form, str] = {"peft": "adapter_model.safetensors", "mlx": "adapters.safetensors"}
_BASE: dict[Form, str] = {"peft": "base_model_name_or_path", "mlx": "model"}
_LIBRARIES: dict[Form, str] = {"peft": "PEFT", "mlx": "mlx-lm"}
_BACKENDS: dict[Form, str] = {"peft": "lightning", "mlx": "mlx"}
_FORMATS: dict[Form, str] = {"peft": "peft", "mlx": "mlx-adapter"}  # of wordle-rl export
_RECORD = "peft_config"  # entry of an mlx-lm config: the PEFT config it was converted from
_PEFT = re.compile(r"base_model\.model\.(.+)\.layers\.(\d+)\.(.+)\.lora_([AB])\.weight")
_MLX = re.compile(r"(.+)\.layers\.(\d+)\.(.+)\.lora_([ab])")
_TRUNKS = {  # PEFT's name -> mlx-lm's name
    "model": "model",
    "model.language_model": "language_model.model",
    "language_model.model": "language_model.model",  # transformers before 4.52
}
_PLAIN: dict[str, tuple[Any, ...]] = {  # PEFT settings and the only values mlx-lm can express
    "peft_type": ("LORA",), "use_dora": (False, None), "bias": ("none",),
    "fan_in_fan_out": (False, None), "modules_to_save": (None, []), "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None), "lora_bias": (False, None), "target_parameters": (None, []),
    "trainable_token_indices": (None, [], {}), "layer_replication": (None,),
}  # fmt: skip

_KINDS: dict[str, Any] = {  # type of each entry that is read, in either form
    "r": int, "lora_alpha": float, "lora_dropout": float, "use_rslora": bool | None,
    "base_model_name_or_path": str | None, "peft_type": str, "fine_tune_type": str,
    "model": str | None, "lora_parameters": dict, _RECORD: dict | None,
}  # fmt: skip


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and not a whole model."""
    return (folder / ADAPTER).is_file()


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """The checked adapter_config.json of a folder. Raises ConfigError."""
    if not (folder / ADAPTER).exists() and (folder / "config.json").exists():
        raise ConfigError(f"{folder} holds a whole model, and no adapter that could be converted")
    path = folder / ADAPTER
    try:
        config = read_object(path)
        check_entries(path, config, _KINDS)
        if "lora_parameters" in config:
            check_all_entries(path, config["lora_parameters"], {"rank": int, "scale": float})
            check_entries(path, config["lora_parameters"], {"dropout": float})
        if isinstance(record := config.get(_RECORD), dict):
            check_all_entries(f"{path}: {_RECORD}", record, {"config": dict, "trunk": str})
            if record["trunk"] not in _TRUNKS:
                raise FolderError(f"{path}: {_RECORD}: no such trunk as {record['trunk']!r}")
    except (OSError, FolderError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    return config


def read_adapter_form(folder: Path) -> Form:
    """The form of an adapter folder. Raises ConfigError when it is neither."""
    config = read_adapter_config(folder)
    if "peft_type" in config:
        return "peft"
    if "lora_parameters" in config:
        return "mlx"
    raise ConfigError(f"{folder / ADAPTER}: neither PEFT's nor mlx-lm's")


def check_adapter_form(folder: Path, wanted: Form) -> None:
    """Raise ConfigError when an adapter folder has another form than the backend reads."""
    form = read_adapter_form(folder)
    if form != wanted:
        raise ConfigError(
            f"model.path={folder} is an adapter in {_LIBRARIES[form]}'s form: convert it with "
            f"wordle-rl export {folder} --format {_FORMATS[wanted]} --output <new folder>, or use "
            f"backend={_BACKENDS[form]}"
        )


def find_base_name(folder: Path, form: Form) -> str:
    """The name of the model under an adapter. Raises ConfigError when it names none that may be."""
    check_adapter_form(folder, form)
    name = read_adapter_config(folder).get(_BASE[form])
    if not name:
        raise ConfigError(f"{folder / ADAPTER} does not name its model: add an entry {_BASE[form]}")
    location = locate(name)
    if Path(location).exists() or (location == name and may_be_on_hub(name)):
        return str(name)
    command = fetch_command(name)
    raise ConfigError(
        f"{folder / ADAPTER}: {_BASE[form]}={name} is no folder here: "
        + (f"run {command} once" if command else "write where its model is")
    )


def convert_adapter(source: Path, target: Path, *, base: str | None = None) -> Form:
    """Write the adapter of a folder into a new folder in the other form, which is returned.

    base: the model of the new adapter; None for the same name as the old one's. Raises ConfigError,
    before anything is written, for an adapter that cannot be converted.
    """
    form = read_adapter_form(source)
    config, weights = read_adapter_config(source), read_adapter_weights(source, form)
    if target.exists():
        raise ConfigError(f"{target} exists already: name a new folder")
    other: Form
    if form == "peft":
        new, converted = _convert_to_mlx(source, config, weights)
        name, other = "model", "mlx"
    else:
        new, converted = _convert_to_peft(source, config, weights)
        name, other = "base_model_name_or_path", "peft"
    if base is not None:
        new[name] = base
    target.mkdir(parents=True)
    save_file(converted, target / FILES[other], metadata={"format": "pt"})
    write_json(target / ADAPTER, new)
    write_stages(target, stages_of(source))
    return other


def _convert_to_mlx(
    source: Path, config: dict[str, Any], weights: dict[str, torch.Tensor]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    for name, allowed in _PLAIN.items():
        if name in config and config[name] not in allowed:
            raise ConfigError(f"{source}: mlx-lm has nothing for {name}={config[name]!r}")
    trunks, ranks, modules, converted = set(), set(), set(), {}
    for name, tensor in weights.items():
        found = _PEFT.fullmatch(name)
        if found is None or found[1] not in _TRUNKS:
            raise ConfigError(f"{source}: {name} is no LoRA weight of a layer that can be mapped")
        trunk, layer, module, letter = found.groups()
        trunks.add(trunk)
        modules.add(module)
        transposed = _transpose(tensor)
        ranks.add(transposed.shape[1 if letter == "A" else 0])
        converted[f"{_TRUNKS[trunk]}.layers.{layer}.{module}.lora_{letter.lower()}"] = transposed
    rank = config.get("r", 0)
    if len(trunks) != 1 or ranks != {rank} or rank < 1 or "lora_alpha" not in config:
        raise ConfigError(
            f"{source}: mlx-lm needs one rank, alpha and model, this has ranks {sorted(ranks)}, "
            f"r={rank}, lora_alpha={config.get('lora_alpha')} and weights of {sorted(trunks)}"
        )
    root = math.sqrt(rank) if config.get("use_rslora") else rank
    parameters = {
        "rank": rank,
        "scale": config["lora_alpha"] / root,
        "dropout": config.get("lora_dropout", 0.0),
        "keys": sorted(modules),
    }
    record = {"config": config, "trunk": trunks.pop()}
    return {
        "fine_tune_type": "lora",
        "model": config.get("base_model_name_or_path"),
        "num_layers": -1,  # all
        "lora_parameters": parameters,
        _RECORD: record,
    }, converted


def _convert_to_peft(
    source: Path, config: dict[str, Any], weights: dict[str, torch.Tensor]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if config.get("fine_tune_type", "lora") != "lora":
        raise ConfigError(f"{source}: PEFT's LoRA has no fine_tune_type={config['fine_tune_type']}")
    record = config.get(_RECORD)
    names = {mlx: peft for peft, mlx in reversed(_TRUNKS.items())}  # the newest PEFT name wins
    if record is not None:
        names[_TRUNKS[record["trunk"]]] = record["trunk"]
    modules, converted = set(), {}
    for name, tensor in weights.items():
        found = _MLX.fullmatch(name)
        if found is None or found[1] not in names:
            raise ConfigError(f"{source}: {name} is no LoRA weight of a layer that can be mapped")
        trunk, layer, module, letter = found.groups()
        modules.add(module.rpartition(".")[2])
        new = (
            f"base_model.model.{names[trunk]}.layers.{layer}.{module}.lora_{letter.upper()}.weight"
        )
        converted[new] = _transpose(tensor)
    if record is not None:
        return {**record["config"]}, converted
    parameters = config["lora_parameters"]
    rank = parameters["rank"]
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": config.get("model"),
        "r": rank,
        "lora_alpha": parameters["scale"] * rank,
        "lora_dropout": parameters.get("dropout", 0.0),
        "target_modules": sorted(modules),
        "bias": "none",
        "inference_mode": True,
    }, converted


def read_adapter_weights(folder: Path, form: Form) -> dict[str, torch.Tensor]:
    """The weights of an adapter. Raises ConfigError."""
    try:
        return read_weights(folder / FILES[form])
    except CheckpointError as error:
        raise ConfigError(str(error)) from None


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim != 2 or not tensor.is_floating_point():
        raise ConfigError(
            f"LoRA weights must be float matrices, not {tensor.dtype} {list(tensor.shape)}"
        )
    return tensor.T.contiguous()


def check_weights_fit(folder: Path, saved: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise ConfigError unless an adapter's weights have the names and shapes of its base."""
    try:
        check_fit(folder / ADAPTER, saved, expected)
    except CheckpointError as error:
        raise ConfigError(f"model.path={folder}: the adapter does not fit ({error})") from None


def check_loaded_adapter(settings: LoraSettings, *, rank: int, alpha: float) -> None:
    """Raise ConfigError when the settings ask for another rank or alpha than a loaded adapter's.

    alpha may be off by rounding, because mlx-lm stores alpha / rank.
    """
    for name, loaded, asked in (("rank", rank, settings.rank), ("alpha", alpha, settings.alpha)):
        if abs(loaded - asked) > 1e-6 * abs(asked):
            raise ConfigError(f"model.lora.{name} must be {loaded}, as in model.path, not {asked}")


def choose_layers(targets: str | list[str], layers: Sequence[str]) -> list[str]:
    """Choose the linear layers that model.lora.targets names, without the language-model head.

    layers: dotted names of all linear layers. targets: a list of the ends of names, or a pattern
    for whole names. Raises ConfigError if the pattern, or an entry of the list, fits no layer.
    """
    layers = [layer for layer in layers if layer.rpartition(".")[2] != LM_HEAD]
    if targets == "all-linear":
        return layers
    if isinstance(targets, str):
        chosen = [layer for layer in layers if re.fullmatch(targets, layer)]
        wrong = [] if chosen else [targets]
    else:
        chosen = [layer for layer in layers if any(_ends_with(layer, t) for t in targets)]
        wrong = [t for t in targets if not any(_ends_with(layer, t) for layer in layers)]
    if wrong:
        names = ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
        raise ConfigError(f"model.lora.targets must be of {names}, or all-linear, not {wrong[0]!r}")
    return chosen


def _ends_with(layer: str, target: str) -> bool:
    return f".{layer}".endswith(f".{target}")
