"""LoRA adapters on disk, in PEFT's form or mlx-lm's: checks, and conversion bit for bit.

    PEFT    adapter_model.safetensors   ....layers.N.MODULE.lora_A.weight [r, in], lora_B [out, r]
    mlx-lm  adapters.safetensors        ....layers.N.MODULE.lora_a [in, r], lora_b [r, out]

The module converts plain LoRA on linear layers of Qwen2 and Gemma 3 (text or multimodal, with the
names of transformers 4 and 5) and refuses anything else.
"""

import math
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save_file

from wordle_rl.backends.bases import ADAPTER, locate_base
from wordle_rl.backends.loading import TEMPLATE, read_weights
from wordle_rl.policy.models import MAIN, fetch_command, locate, may_be_on_hub
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.runs.files import read_object, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import runnable
from wordle_rl.training.lineage import base_of, stages_of, write_base, write_stages

AdapterFormat = Literal["peft", "mlx"]

LM_HEAD = "lm_head"  # the language-model head's name in transformers
FILES: dict[AdapterFormat, str] = {
    "peft": "adapter_model.safetensors",
    "mlx": "adapters.safetensors",
}
_BASE: dict[AdapterFormat, str] = {"peft": "base_model_name_or_path", "mlx": "model"}
_NAMES: dict[AdapterFormat, re.Pattern[str]] = {  # of weights
    "peft": re.compile(r"base_model\.model\.(.+)\.layers\.(\d+)\.(.+)\.lora_([AB])\.weight"),
    "mlx": re.compile(r"(.+)\.layers\.(\d+)\.(.+)\.lora_([ab])"),
}
_TRUNKS: dict[AdapterFormat, dict[str, str]] = {  # of each form -> the other's
    "peft": {
        "model": "model",
        "model.language_model": "language_model.model",
        "language_model.model": "language_model.model",  # transformers before 4.52
    },
    "mlx": {"model": "model", "language_model.model": "model.language_model"},
}
# PEFT's settings that change nothing in what is computed, or that _describe_mlx() carries over.
_CARRIED_KEYS = (
    "task_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "r",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "megatron_core",
    "qalora_group_size",
    "eva_config",
)
_KNOWN_KEYS = {  # what peft computes, or check_targets() refuses
    *_CARRIED_KEYS,
    *["peft_type", "bias", "init_lora_weights", "modules_to_save", "trainable_token_indices"],
    *["fan_in_fan_out", "rank_pattern", "alpha_pattern", "use_dora", "lora_bias", "loftq_config"],
    *["corda_config", "lora_ga_config", "runtime_config", "ensure_weight_tying"],
}
_MLX_KEYS = ("rank", "scale", "dropout", "keys", "alpha")  # older versions wrote alpha, unused
_PLAIN_VALUES: dict[str, tuple[Any, ...]] = {  # the only values that mlx-lm can express
    "peft_type": ("LORA",),
    "bias": ("none",),
    # Others change the base under the adapter.
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and not a whole model."""
    return (folder / ADAPTER).is_file()


def read_adapter_form(folder: Path) -> AdapterFormat:
    """The form of an adapter folder.

    Raises ConfigError when it is neither, is no LoRA adapter, lacks an entry that a library would
    fill in, or has one that nobody here computes.
    """
    config = read_object(folder / ADAPTER)
    if "peft_type" in config:
        _check_kind(folder, "peft_type", config["peft_type"], "LORA")
        _check_entries(folder, config, ("r", "lora_alpha"), _KNOWN_KEYS)
        return "peft"
    if "lora_parameters" in config or "fine_tune_type" in config:
        kind, entries = config.get("fine_tune_type", "lora"), config.get("lora_parameters") or {}
        _check_kind(folder, "fine_tune_type", kind, "lora")
        _check_entries(folder, entries, ("rank", "scale"), _MLX_KEYS)
        return "mlx"
    raise ConfigError(f"{folder / ADAPTER}: neither PEFT's nor mlx-lm's")


def _check_kind(folder: Path, entry: str, kind: Any, lora: str) -> None:
    if kind != lora:
        raise ConfigError(
            f"{folder / ADAPTER}: {entry}={kind}, and only adapters of LoRA ({entry}={lora}) can "
            "be loaded"
        )


def _check_entries(
    folder: Path, entries: Mapping[str, Any], needs: Sequence[str], names: Collection[str]
) -> None:
    """Raise ConfigError for an entry that is missing, or that nobody here computes."""
    if gaps := [name for name in needs if entries.get(name) is None]:
        raise ConfigError(f"{folder / ADAPTER} lacks {gaps[0]}, which libraries would fill in")
    for name, value in entries.items():
        if value and name not in names:
            raise ConfigError(f"{folder / ADAPTER}: {name}={value!r} cannot be computed here")


def find_base_name(folder: Path, wanted: AdapterFormat | None = None) -> str:
    """The name of the model under an adapter.

    Raises ConfigError when the adapter has another form than the wanted one, or its model is not
    here and cannot be on the hub.
    """
    form = read_adapter_form(folder)
    if wanted not in (None, form):
        target, backend = ("peft", "mlx") if wanted == "peft" else ("mlx-adapter", "lightning")
        export = runnable(f"wordle-rl export {shlex.quote(str(folder))} --format {target}")
        raise ConfigError(
            f"model.path={folder} is an adapter in the form of {form}: convert it with {export} "
            f"--output <new folder>, or use backend={backend}"
        )
    if not (name := read_object(folder / ADAPTER).get(_BASE[form])):
        raise ConfigError(f"{folder / ADAPTER} does not name its model: add an entry {_BASE[form]}")
    location = locate_base(folder, name)
    if Path(location).exists() or (location == name and may_be_on_hub(name)):
        return name if location == locate(name) else location
    command = fetch_command(name)
    raise ConfigError(
        f"{folder / ADAPTER}: {_BASE[form]}={name} is no folder here: "
        + (f"run {command} once" if command else "write where its model is")
    )


def find_base(folder: Path, wanted: AdapterFormat | None = None) -> tuple[str, str]:
    """Location and revision of the model under an adapter. Raises as find_base_name()."""
    name = str(find_base_name(folder, wanted))
    return locate(name), read_object(folder / ADAPTER).get("revision") or MAIN


def has_tokenizer(folder: Path) -> bool:
    """Whether an adapter's folder has a tokenizer with its template, which a copy may lose."""
    file = folder / "tokenizer_config.json"
    has_template = (folder / TEMPLATE).is_file()
    return file.is_file() and (has_template or "chat_template" in read_object(file))


def check_targets(folder: Path, names: Iterable[str]) -> None:
    """Raise ConfigError for an adapter that changes more than matrices of the layers.

    names: of the matrices that it changes, or of their weights.
    """
    config = read_object(folder / ADAPTER)
    extras = [name for name in ("modules_to_save", "trainable_token_indices") if config.get(name)]
    extras += ["bias"] if config.get("bias", "none") != "none" else []
    extras += sorted({name for name in names if not re.search(r"\.\d+\.", name)})
    if extras:
        raise ConfigError(
            f"{folder / ADAPTER}: an adapter must change only matrices of the layers, and this one "
            f"has {extras[0]}: train one without it"
        )


def convert_adapter(source: Path, target: Path, *, base: str | None = None) -> AdapterFormat:
    """Write the adapter of a folder into a new folder in the other form, which is returned.

    base: the model of the new adapter; None for the same name as the old one's. Raises ConfigError,
    before anything is written, for an adapter that cannot be converted.
    """
    form = read_adapter_form(source)
    other_form: AdapterFormat = "mlx" if form == "peft" else "peft"
    config, modules = read_object(source / ADAPTER), set[str]()
    if target.exists():
        raise ConfigError(f"{target} exists already: name a new folder")
    tensors = {}
    for name, tensor in read_weights(source / FILES[form]).items():
        module, key = _convert_name(source, form, name, tensor.ndim)
        modules.add(module)
        tensors[key] = tensor.T.contiguous()
    describe = _describe_mlx if form == "peft" else _describe_peft
    try:
        new_config = describe(config, sorted(modules))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{source / ADAPTER}: an entry is missing or wrong ({error})") from None
    if base is not None:
        new_config[_BASE[other_form]] = base
    target.mkdir(parents=True)
    save_file(tensors, target / FILES[other_form], metadata={"format": "pt"})
    write_json(target / ADAPTER, new_config)
    write_stages(target, stages_of(source))
    write_base(target, base_of(source) if base is None else {})
    if (template := source / TEMPLATE).is_file():
        shutil.copy(template, target)
    return other_form


def _convert_name(source: Path, form: AdapterFormat, name: str, axes: int) -> tuple[str, str]:
    """The matrix that a weight of an adapter changes, and the weight's name in the other form.

    axes: of the weight. Raises ConfigError for a weight that the other form cannot name.
    """
    match = _NAMES[form].fullmatch(name)
    if match is None or match[1] not in _TRUNKS[form] or axes != 2:
        raise ConfigError(f"{source}: {name} is no LoRA weight of a layer that can be mapped")
    trunk, layer, module, letter = match.groups()
    matrix = f"{_TRUNKS[form][trunk]}.layers.{layer}.{module}"
    if form == "peft":
        return matrix, f"{matrix}.lora_{letter.lower()}"
    return matrix, f"base_model.model.{matrix}.lora_{letter.upper()}.weight"


def _describe_mlx(config: dict[str, Any], modules: list[str]) -> dict[str, Any]:
    """mlx-lm's config of an adapter, of PEFT's. modules: whole names of the adapted matrices.

    Ends of names would fit more layers than were adapted, or matrices of a vision tower.
    """
    for name, value in config.items():
        if name in _PLAIN_VALUES:
            can_be_said = value in _PLAIN_VALUES[name]
        else:
            can_be_said = not value or name in _CARRIED_KEYS
        if not can_be_said:
            raise ConfigError(f"mlx-lm has nothing for {name}={value!r}")
    root = math.sqrt(config["r"]) if config.get("use_rslora") else config["r"]
    parameters = {
        "rank": config["r"],
        "scale": config["lora_alpha"] / root,
        "dropout": config.get("lora_dropout", 0.0),
        "keys": modules,
    }
    return {
        "fine_tune_type": "lora",
        "model": config.get("base_model_name_or_path"),
        "num_layers": -1,  # whole names are looked up in all layers
        "lora_parameters": parameters,
    }


def _describe_peft(config: dict[str, Any], modules: list[str]) -> dict[str, Any]:
    """PEFT's config of an adapter, of mlx-lm's. modules: as in _describe_mlx()."""
    parameters = config["lora_parameters"]
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": config.get("model"),
        "r": parameters["rank"],
        "lora_alpha": parameters["scale"] * parameters["rank"],
        "lora_dropout": parameters.get("dropout", 0.0),
        "target_modules": modules,
        "bias": "none",
        "inference_mode": True,
    }


def check_loaded_adapter(settings: LoraSettings, *, rank: int, alpha: float) -> None:
    """Raise ConfigError when the settings ask for another rank or alpha than a loaded adapter's.

    alpha may be off by rounding, because mlx-lm stores alpha / rank.
    """
    for name, value, setting in (("rank", rank, settings.rank), ("alpha", alpha, settings.alpha)):
        if abs(value - setting) > 1e-6 * abs(setting):
            raise ConfigError(
                f"model.lora.{name} must be {value}, as in model.path, not {setting}: "
                "model.lora=null takes what is there"
            )


def choose_layers(targets: str | list[str], layers: Sequence[str]) -> list[str]:
    """Choose the linear layers that model.lora.targets names, without the language-model head.

    layers: dotted names of all linear layers. targets: all-linear, or a list of the ends of names.
    Raises ConfigError if an entry of the list fits no layer.
    """
    layers = [layer for layer in layers if layer.rpartition(".")[2] != LM_HEAD]
    if isinstance(targets, str):
        return layers
    matches = {t: [n for n in layers if f".{n}".endswith(f".{t}")] for t in targets}
    if not targets or not all(matches.values()):
        names = ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
        raise ConfigError(f"model.lora.targets must be of {names}, or all-linear, not {targets}")
    return [n for n in layers if any(n in group for group in matches.values())]
