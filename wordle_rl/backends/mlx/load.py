"""Loads models for MLX: any folder that mlx-lm reads, its adapters, and the embedded models.

LoRA comes through mlx-lm's own layers, on plain or quantised weights.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import gemma3
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import _get_classes, load_model
from transformers import AutoTokenizer

from wordle_rl.backends.adapters import ADAPTER, adapter_kind, read_config
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.hub import notice_offline
from wordle_rl.backends.mlx.config import for_mlx_lm
from wordle_rl.backends.mlx.timing import choose_computing
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.settings import HEAD, UNTRAINED, LoraSettings, ModelSettings
from wordle_rl.runs.full_disk import full_disk
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.libraries import missing

_FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.txt", "*.jinja"]  # fetched from the hub
LORA = ("lora_a", "lora_b")


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model in memory, and what export needs to know of where it came from."""

    model: Any  # an mlx-lm model
    tokenizer: HFTokenizer
    config: dict[str, Any]  # its config.json, with what mlx-lm reads otherwise put right
    generation: dict[str, Any] | None  # its generation_config.json
    adapter: dict[str, Any] | None  # adapter_config.json in mlx-lm's form, under LoRA
    computing: Computing


class _Gemma3(gemma3.Model):
    """mlx-lm's multimodal Gemma 3, reading the names of transformers 5 as well."""

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        renamed = {}
        for name, value in weights.items():
            name = re.sub(r"^model\.(vision_tower|multi_modal_projector)\.", r"\1.", name)
            name = re.sub(r"^model\.language_model\.", "language_model.model.", name)
            renamed[re.sub(r"^lm_head\.", "language_model.lm_head.", name)] = value
        return super().sanitize(renamed)


def _classes(config: dict[str, Any]) -> tuple[Any, Any]:
    if config["model_type"] == "gemma3":
        return _Gemma3, gemma3.ModelArgs
    return _get_classes(config)


def load(settings: ModelSettings, *, precision: Precision | Literal["auto"]) -> Loaded:
    """The model, ready to train, and its tokenizer.

    precision: auto times both on a CPU, and is bf16 on a GPU. Fully trained models come in float32;
    the frozen base under LoRA in that precision, its quantised weights as they are, the adapters in
    float32. Raises ConfigError in one line when the model cannot be had.
    """
    mx.random.seed(settings.seed)  # mlx-lm draws adapters from the global generator
    if settings.path != UNTRAINED:
        return _loaded(settings, settings.location, precision)
    from wordle_rl.backends.tiny_model import save_untrained

    with tempfile.TemporaryDirectory() as folder:  # the same weights as on the other backend
        save_untrained(Path(folder), seed=settings.seed, **settings.shape)
        return _loaded(settings, folder, precision)


def _loaded(
    settings: ModelSettings, location: str, precision: Precision | Literal["auto"]
) -> Loaded:
    with one_line(location):
        folder = fetched(location)
        is_adapter = (folder / ADAPTER).is_file()
        base = base_of(folder) if is_adapter else folder
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model, config = load_base(base)
        generation = base / "generation_config.json"
        generation = json.loads(generation.read_bytes()) if generation.is_file() else None
        lora = settings.lora is not None or is_adapter
        computing = choose_computing(precision, config)
        half = lora and computing.precision == "bf16"
        _cast(model, mx.bfloat16 if half else mx.float32)
        adapter = read_config(folder) if is_adapter else None
        if adapter is not None:
            load_adapters(model, str(folder))
    if settings.lora is not None:
        if adapter is None:
            adapter = _add_lora(model, settings.lora, str(base))
        else:
            _check_adapter(adapter, settings.lora)
    _choose_trained(model, lora)
    stops = (generation or {}).get("eos_token_id", config.get("eos_token_id"))
    stops = tuple(stops) if isinstance(stops, list) else (stops,)
    return Loaded(
        model=model,
        computing=computing,
        tokenizer=HFTokenizer(
            tokenizer, extra_stop_ids=tuple(int(i) for i in stops if i is not None)
        ),
        config=config,
        generation=generation,
        adapter=adapter,
    )


@contextmanager
def one_line(location: str) -> Iterator[None]:
    """Turns whatever goes wrong while a model is loaded into a ConfigError of one line."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # whatever the parsers of three libraries raise about bad files
        if full_disk(error) or (isinstance(error, ModuleNotFoundError) and missing(error)):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"model.path={location} cannot be loaded by mlx-lm: {reason}") from error


def fetched(location: str) -> Path:
    """The folder itself, or that of a hub model in the local cache, downloaded if need be."""
    if Path(location).is_dir():
        return Path(location)
    from huggingface_hub import snapshot_download

    notice_offline(location)
    try:
        return Path(snapshot_download(location, allow_patterns=_FILES))
    except Exception as error:
        if full_disk(error):
            raise
        raise ConfigError(
            f"model.path={location} is neither a folder nor in the local cache, and the hub cannot "
            f"be reached: connect and run `hf download {location}`, or give a folder that holds it"
            " with model.path=/path/to/it"
        ) from error


def base_of(folder: Path) -> Path:
    """The folder of the model that an adapter of mlx-lm's form was made for."""
    if adapter_kind(folder) != "mlx":
        raise ConfigError(
            f"model.path={folder} is an adapter in PEFT's form: convert it with "
            f"python -m wordle_rl.convert {folder} <new folder>, or use backend=lightning"
        )
    base = read_config(folder).get("model")
    if not base:
        raise ConfigError(f"{folder / ADAPTER} does not name its model: add an entry `model`")
    return fetched(str(base))


def load_base(folder: Path) -> tuple[Any, dict[str, Any]]:
    """An mlx-lm model without adapters, as it is in its folder, and its corrected config."""
    config = json.loads((folder / "config.json").read_bytes())
    config |= for_mlx_lm(config)
    model, _ = load_model(folder, model_config=config, get_model_classes=_classes)
    return model, config


def _cast(model: nn.Module, dtype: mx.Dtype) -> None:
    """All weights in one precision, but for layers that are quantised."""
    for _, module in model.named_modules():
        if not hasattr(module, "bits") and not module.children():
            module.set_dtype(dtype)
    mx.eval(model.parameters())


def is_quantised(model: nn.Module) -> bool:
    return any(hasattr(module, "bits") for _, module in model.named_modules())


def _add_lora(model: nn.Module, settings: LoraSettings, base: str) -> dict[str, Any]:
    """Put adapters into a model; returns their adapter_config.json."""
    parameters: dict[str, Any] = {
        "rank": settings.rank,
        "scale": settings.alpha / settings.rank,
        "dropout": settings.dropout,
        "keys": _keys(model, settings.targets),
    }
    linear_to_lora_layers(model, -1, parameters)
    mx.eval(model.parameters())
    return {
        "fine_tune_type": "lora",
        "model": base,
        "num_layers": -1,  # all
        "lora_parameters": parameters,
    }


def _keys(model: nn.Module, targets: str | list[str]) -> list[str]:
    """Linear layers by their name within a layer, or by their whole name where a pattern chose."""
    linear = (nn.Linear, nn.QuantizedLinear)
    layers: Any = model.layers
    inside = sorted(
        {n for layer in layers for n, m in layer.named_modules() if isinstance(m, linear)}
    )
    if targets == "all-linear":
        return inside
    if isinstance(targets, str):
        whole = [n for n, m in model.named_modules() if isinstance(m, linear)]
        keys = [n for n in whole if re.fullmatch(targets, n) and not n.endswith(HEAD)]
        wrong = [] if keys else [targets]
    else:
        keys = [n for n in inside if any(f".{n}".endswith(f".{t}") for t in targets)]
        wrong = [t for t in targets if not any(f".{n}".endswith(f".{t}") for n in inside)]
    if wrong:
        names = ", ".join(sorted({n.rpartition(".")[2] for n in inside}))
        raise ConfigError(f"model.lora.targets must be of {names}, or all-linear, not {wrong[0]!r}")
    return keys


def _check_adapter(adapter: dict[str, Any], settings: LoraSettings) -> None:
    """An adapter that was loaded keeps its form, so the settings must not ask for another."""
    have = adapter["lora_parameters"]
    for name, loaded, asked in (
        ("rank", have["rank"], settings.rank),
        ("alpha", have["scale"] * have["rank"], settings.alpha),
    ):
        if abs(loaded - asked) > 1e-6 * abs(asked):
            raise ConfigError(f"model.lora.{name} must be {loaded}, as in model.path, not {asked}")


def _choose_trained(model: nn.Module, lora: bool) -> None:
    if lora:
        model.freeze()
        model.unfreeze(keys=list(LORA), strict=False)
    elif is_quantised(model):
        raise ConfigError(
            "model.lora must be given: quantised weights cannot be trained themselves"
        )
    else:
        model.unfreeze()
