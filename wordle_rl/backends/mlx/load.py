"""Loads models for MLX: any folder that mlx-lm reads, its adapters, and the embedded models.

LoRA uses mlx-lm's own layers, on plain or quantised weights.
"""

import json
import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models import gemma3, gemma3_text
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

from wordle_rl.backends.adapters import (
    ADAPTER,
    FILES,
    LM_HEAD,
    check_loaded_adapter,
    check_targets,
    choose_layers,
    find_base_name,
    has_tokenizer,
    is_adapter,
)
from wordle_rl.backends.bases import check_base, describe_base
from wordle_rl.backends.gate import check_config, check_files, check_quantization
from wordle_rl.backends.loading import (
    check_fit,
    explain_load_errors,
    load_tokenizer,
    notice_offline,
    read_weights,
)
from wordle_rl.backends.saving import GENERATION, describe_rotation
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.models import MAIN, UNTRAINED, locate, portable_name
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.policy.tokenizer import HFTokenizer, list_stop_ids
from wordle_rl.runs.files import read_object
from wordle_rl.runs.instantiate import ConfigError

# What to download from the hub.
_FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.txt", "*.jinja"]
# Families that tests have compared with transformers. A window of some needs no further switch.
_FAMILIES = ("gemma3", "gemma3_text", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
_WINDOW_KINDS = ("mistral", "phi3")
_GELU = ("gemma3", "gemma3_text")  # whose activation it is; others have silu
_LORA = ("lora_a", "lora_b")  # names of an adapter's weights in a layer


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in memory, and the files that export writes again beside its weights."""

    model: Any  # an mlx-lm model
    tokenizer: HFTokenizer
    config: dict[str, Any]  # its config.json, corrected for mlx-lm
    generation: dict[str, Any]  # its generation_config.json; empty without one
    adapter: dict[str, Any] | None = None  # adapter_config.json in mlx-lm's form, under LoRA
    base: dict[str, str] = field(default_factory=dict)  # what the adapter's record says of it


class _Gemma3(gemma3.Model):
    """mlx-lm's multimodal Gemma 3, which also reads the names of transformers 5."""

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        tensors = {}
        for name, value in weights.items():
            name = re.sub(r"^model\.(vision_tower|multi_modal_projector)\.", r"\1.", name)
            name = re.sub(r"^model\.language_model\.", "language_model.model.", name)
            tensors[re.sub(r"^lm_head\.", "language_model.lm_head.", name)] = value
        return super().sanitize(tensors)


class _Gemma3Embedding(nn.Embedding):
    """Gemma 3's embedding. mlx-lm multiplies it by a root that it rounds to bfloat16 everywhere."""

    def __call__(self, ids: mx.array) -> mx.array:
        rows = super().__call__(ids)
        root = rows.shape[-1] ** 0.5
        bf16_root = mx.array(root, mx.bfloat16).astype(rows.dtype)
        return rows * (mx.array(root, rows.dtype) / bf16_root)


def _find_classes(config: dict[str, Any]) -> tuple[Any, Any]:
    if config["model_type"] == "gemma3":
        return _Gemma3, gemma3.ModelArgs
    return mlx_lm_utils._get_classes(config)


def load_model(settings: ModelSettings, *, precision: Precision) -> LoadedModel:
    """The model, ready to train, and its tokenizer.

    Fully trained models are loaded in float32. Frozen ones, and a base under LoRA, have the given
    precision, except for quantised weights, and an adapter is float32. Raises ConfigError in one
    line for what cannot be loaded.
    """
    mx.random.seed(settings.seed)  # mlx-lm draws adapters from the global generator
    if settings.path != UNTRAINED:
        return _load_folder(settings, settings.location, precision)
    from wordle_rl.backends.tiny_model import save_untrained

    with tempfile.TemporaryDirectory() as folder:  # the same weights as on the other backend
        save_untrained(Path(folder), seed=settings.seed, **settings.shape)
        return _load_folder(settings, folder, precision)


def _load_folder(settings: ModelSettings, location: str, precision: Precision) -> LoadedModel:
    with explain_load_errors(location, on_disk=True, library="mlx-lm"):
        folder = fetch_model(location, settings.revision)
        adapter_dir = folder if is_adapter(folder) else None
        base = folder if adapter_dir is None else find_base(folder)
        lora = settings.lora is not None or adapter_dir is not None
        record = describe_base(str(base), adapter=adapter_dir) if lora else {}
        if adapter_dir is not None and not settings.any_base:
            check_base(folder, record, str(base))
        model, config = load_base(base)
        rounds = precision == "bf16" and (lora or settings.only_scores)
        _cast(model, mx.bfloat16 if rounds else mx.float32)
        if adapter_dir is not None:
            _load_adapter(model, folder)
        # mlx-lm writes adapters without a tokenizer.
        tokenizer_dir = base if adapter_dir is not None and not has_tokenizer(folder) else folder
        bundle = assemble(model, config, base, tokenizer=tokenizer_dir, adapter=adapter_dir)
    adapter = None if adapter_dir is None else read_object(folder / ADAPTER)
    if settings.lora is not None:
        adapter = _choose_adapter(model, settings.lora, adapter, portable_name(str(base)))
    model.freeze() if settings.only_scores else _choose_trained(model, lora)
    return replace(bundle, adapter=adapter, base=record)


def _choose_adapter(
    model: Any, settings: LoraSettings, adapter: dict[str, Any] | None, base: str
) -> dict[str, Any]:
    """The config of a model's adapter, to which one is added if it has none."""
    if adapter is None:
        return _add_lora(model, settings, base)
    lora = adapter["lora_parameters"]
    check_loaded_adapter(settings, rank=lora["rank"], alpha=lora["scale"] * lora["rank"])
    return adapter


def assemble(
    model: Any, config: dict[str, Any], base: Path, *, tokenizer: Path, adapter: Path | None = None
) -> LoadedModel:
    """A model of the folder base, with what lies beside its weights.

    tokenizer: its folder. adapter: the adapter's, if any, which may have a template of its own.
    """
    file = base / GENERATION
    generation = read_object(file) if file.is_file() else {}
    stops = list_stop_ids(generation.get("eos_token_id", config.get("eos_token_id")))
    inner = load_tokenizer(str(tokenizer), adapter=adapter)
    rows = getattr(model, "language_model", model).model.embed_tokens.weight.shape[0]
    texts = HFTokenizer(inner, extra_stop_ids=stops, vocabulary=rows)
    return LoadedModel(model=model, tokenizer=texts, config=config, generation=generation)


def _load_adapter(model: nn.Module, folder: Path) -> None:
    """Put a folder's adapter on its base, in float32. Raises ConfigError when it does not fit."""
    arrays = read_weights(folder / FILES["mlx"])
    check_targets(folder, arrays)
    load_adapters(model, str(folder))  # accepts an adapter that lacks weights
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    expected = {n: weight for n, weight in weights.items() if n.rpartition(".")[2] in _LORA}
    check_fit(folder / FILES["mlx"], arrays, expected)
    model.load_weights([(n, w.astype(mx.float32)) for n, w in expected.items()], strict=False)


def fetch_model(location: str, revision: str = MAIN) -> Path:
    """The folder itself, or the local copy of a hub model, downloaded if necessary."""
    if Path(location).is_dir():
        return Path(location)
    from huggingface_hub import snapshot_download

    notice_offline(location)
    with explain_load_errors(location, on_disk=False):
        return Path(snapshot_download(location, revision=revision, allow_patterns=_FILES))


def find_base(folder: Path) -> Path:
    """The folder of the model under an adapter in mlx-lm's form."""
    return fetch_model(locate(find_base_name(folder, "mlx")))


def load_base(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The mlx-lm model of a folder, without adapters, and its corrected config.

    Raises ConfigError for a model that needs something mlx-lm does not implement.
    """
    config = json.loads((folder / "config.json").read_bytes())
    check_files(str(folder))
    check_quantization(str(folder), config, mlx=True)
    check_config(str(folder), config)
    try:
        config |= correct_config(config)
    except ConfigError as error:
        raise ConfigError(f"{folder}: {error}") from None
    if _has_own_head(folder):  # as on torch, whatever the file says
        entry = {"tie_word_embeddings": False}
        text = {"text_config": config["text_config"] | entry} if "text_config" in config else {}
        config |= entry | text
    model, _ = mlx_lm_utils.load_model(folder, model_config=config, get_model_classes=_find_classes)
    for module in model.modules():
        if (
            isinstance(module, gemma3_text.Gemma3Model)
            and type(module.embed_tokens) is nn.Embedding
        ):
            module.embed_tokens.__class__ = _Gemma3Embedding
    return model, config


def _has_own_head(folder: Path) -> bool:
    """Whether a model's files have a head with other weights than its embedding."""
    weights: dict[str, mx.array] = {}
    for file in folder.glob("model*.safetensors"):
        arrays: Any = mx.load(str(file))  # reads names alone
        weights |= arrays
    head, table = (
        [weight for name, weight in weights.items() if name.endswith(f"{end}.weight")]
        for end in (LM_HEAD, "embed_tokens")
    )
    return bool(head and table) and not mx.array_equal(head[0], table[0]).item()


def _cast(model: nn.Module, dtype: mx.Dtype) -> None:
    """Convert all weights to one precision, except in quantised layers."""
    for _, module in model.named_modules():
        if not hasattr(module, "bits") and not module.children():
            module.set_dtype(dtype)
    mx.eval(model.parameters())


def _add_lora(model: Any, settings: LoraSettings, base: str) -> dict[str, Any]:
    """Add adapters to a model. Returns their adapter_config.json."""
    kinds, parts = (nn.Linear, nn.QuantizedLinear), model.layers
    names = {n for part in parts for n, m in part.named_modules() if isinstance(m, kinds)}
    parameters: dict[str, Any] = {
        "rank": settings.rank,
        "scale": settings.alpha / settings.rank,
        "dropout": settings.dropout,
        "keys": choose_layers(settings.targets, sorted(names)),  # names within a layer
    }
    linear_to_lora_layers(model, -1, parameters)
    mx.eval(model.parameters())
    # -1 for all layers.
    return {
        "fine_tune_type": "lora",
        "model": base,
        "num_layers": -1,
        "lora_parameters": parameters,
    }


def _choose_trained(model: nn.Module, lora: bool) -> None:
    if lora:
        model.freeze()
        model.unfreeze(keys=list(_LORA), strict=False)
    elif any(hasattr(module, "bits") for _, module in model.named_modules()):
        raise ConfigError(
            "model.lora must be given: quantised weights cannot be trained themselves"
        )
    else:
        model.unfreeze()


# -- what mlx-lm would misread --------------------------------------------------------------------


def correct_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return new values for entries of a config.json that mlx-lm 0.32 would misread.

    transformers 5 writes rotary bases and sliding layers in a form that mlx-lm does not read: it
    would use its own defaults without a warning. Raises ConfigError for a model that needs
    something mlx-lm does not implement.
    """
    kind = config.get("model_type")
    if kind not in _FAMILIES:
        raise ConfigError(
            f"the architecture must be one of {', '.join(_FAMILIES)} with backend=mlx, not {kind}"
        )
    _check_activation(kind, config.get("text_config", config))
    if kind == "gemma3":
        text = {**config["text_config"]}
        text |= _correct_gemma(text)
        # Without this entry mlx-lm assumes the size of the released models.
        sizes = {"vocab_size": text["vocab_size"]} if "vocab_size" in text else {}
        return {**sizes, "text_config": text}
    return _correct_gemma(config) if kind == "gemma3_text" else _correct_others(config)


def _check_activation(kind: str, config: dict[str, Any]) -> None:
    """Raise ConfigError unless the activation is the one that mlx-lm has in a family's code."""
    activation = "gelu_pytorch_tanh" if kind in _GELU else "silu"
    for name in ("hidden_act", "hidden_activation"):
        if (value := config.get(name, activation)) != activation:
            raise ConfigError(
                f"backend=mlx: mlx-lm's {kind} computes {activation}, this model has {name}={value}"
            )


def _correct_others(config: dict[str, Any]) -> dict[str, Any]:
    kind = config["model_type"]
    if config.get("use_sliding_window") or (kind in _WINDOW_KINDS and config.get("sliding_window")):
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
        kinds = [
            "full_attention" if i % pattern == 0 else "sliding_attention"
            for i in range(1, len(layers) + 1)
        ]
        if pattern > len(layers) or layers != kinds:
            raise ConfigError(
                "backend=mlx: mlx-lm's Gemma 3 needs every n-th layer to see all tokens, not "
                f"{layers}"
            )
        out["sliding_window_pattern"] = pattern
    return out
