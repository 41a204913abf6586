"""Loads models and tokenizers for torch: embedded, untrained, from a folder or from the hub."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedConfig,
)

from wordle_rl.backends.adapters import (
    FILES,
    check_adapter_form,
    check_loaded_adapter,
    is_adapter,
)
from wordle_rl.backends.hf_tokenizer import HFTokenizer, list_stop_ids
from wordle_rl.backends.loading import explain_load_errors, notice_offline
from wordle_rl.backends.saved_weights import check_fit, read_weights
from wordle_rl.backends.tiny_model import build_untrained
from wordle_rl.backends.torch.adapters import add_lora, find_base, load_adapter
from wordle_rl.backends.torch.families import check_family, check_length
from wordle_rl.policy.settings import UNTRAINED, ModelSettings
from wordle_rl.runs.instantiate import ConfigError


def load_model(
    settings: ModelSettings, *, precision: str, device: str
) -> tuple[torch.nn.Module, HFTokenizer]:
    """The model on its device, ready to train, and its tokenizer.

    Fully trained models are loaded in float32. Under LoRA the frozen base has the given precision,
    and the adapter is float32. Raises ConfigError in one line when the model cannot be loaded.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # errors that matter are raised here
    if settings.path == UNTRAINED:
        model: Any
        model, inner = build_untrained(seed=settings.seed, **settings.shape)
    else:
        frozen = settings.lora is not None or is_adapter(Path(settings.location))
        dtype = torch.bfloat16 if frozen and precision == "bf16" else torch.float32
        quantized = quantization_arguments(settings.quantize, dtype, device)
        model, inner = _load_pretrained(settings, dtype, quantized)
        _keep_trainable(model)
    if settings.lora is not None:
        if hasattr(model, "peft_config"):
            loaded = model.peft_config["default"]
            check_loaded_adapter(settings.lora, rank=loaded.r, alpha=loaded.lora_alpha)
        else:
            model = add_lora(model, settings.lora, settings.seed, settings.revision)
    stops = list_stop_ids(model.generation_config.eos_token_id)
    return model.to(device), HFTokenizer(inner, extra_stop_ids=stops)


def _find_base(settings: ModelSettings) -> tuple[str, str]:
    """Location and revision of the model under an adapter. Other models are their own base."""
    location = settings.location
    if not is_adapter(Path(location)):
        return location, settings.revision
    base, revision = find_base(Path(location))
    notice_offline(base)
    return base, revision


def read_config(settings: ModelSettings, base: str, revision: str) -> Any:
    """The config of a model that can be trained. Raises ConfigError for others."""
    config = AutoConfig.from_pretrained(base, revision=revision, trust_remote_code=False)
    written, _ = PreTrainedConfig.get_config_dict(base, revision=revision)
    check_family(base, config, written)
    check_length(base, config.get_text_config(), settings.max_context)
    return config


def _load_pretrained(
    settings: ModelSettings, dtype: torch.dtype, quantized: dict[str, Any]
) -> tuple[Any, Any]:
    location = settings.location
    with _explain_errors(location):
        adapted = is_adapter(Path(location))
        base, revision = _find_base(settings)
        read_config(settings, base, revision)
        own = not adapted or (Path(location) / "tokenizer_config.json").is_file()
        tokenizer = AutoTokenizer.from_pretrained(
            location if own else base,
            revision=settings.revision if own else revision,
            trust_remote_code=False,
        )
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            base, revision=revision, dtype=dtype, output_loading_info=True,
            trust_remote_code=False, **quantized,
        )  # fmt: skip
        model, found = loaded
        if missing := sorted(found["missing_keys"]):
            raise ConfigError(
                f"model.path={base} lacks {len(missing)} of the weights that its config.json asks "
                f"for, such as {missing[0]}: they are another model's"
            )
        if adapted:
            return load_adapter(model, Path(location)), tokenizer
    freeze_images(model)
    return model, tokenizer


def quantization_arguments(quantize: str | None, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """What from_pretrained needs to round a base to 4 bits while it loads; nothing for None.

    The embedding and the language-model head keep their precision. dtype: in which the products are
    computed. Source: QLoRA (arXiv 2305.14314), 4-bit NormalFloat whose scales are quantised too.
    Raises ModuleNotFoundError without bitsandbytes.
    """
    if quantize is None:
        return {}
    kind = torch.device(device).type
    if kind not in ("cuda", "cpu"):
        raise ConfigError(
            f"model.quantize must be null on {kind}, not {quantize}: bitsandbytes has no 4-bit "
            "products for it; use backend.accelerator=cpu, or a quantised model with backend=mlx"
        )
    # bitsandbytes 0.49 calls a function that torch 2.13 is going to remove.
    warnings.filterwarnings("ignore", message="_check_is_size", category=FutureWarning)
    import_module("bitsandbytes")  # transformers would name no way to install it
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": config, "device_map": {"": device}}


def _keep_trainable(model: torch.nn.Module) -> None:
    """Keep gradients right after rollouts with a model that may be quantised.

    On CPUs with AVX-512 and bf16, bitsandbytes packs a layer's weights when it first computes
    without gradients. A packed layer has no backward pass.
    """
    modules: Iterator[Any] = model.modules()
    for module in modules:
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def freeze_images(model: Any) -> None:
    """Train the language model alone: what reads images has nothing to learn here."""
    inside = {*model.get_decoder().parameters(), *model.get_output_embeddings().parameters()}
    for parameter in model.parameters():
        if parameter not in inside:
            parameter.requires_grad_(False)


def load_weights(model: Any, folder: Path, *, is_lora: bool) -> None:
    """Load what save_pretrained() wrote to a folder; under LoRA only the adapter `default`.

    Raises CheckpointError, before anything is changed, unless names and shapes are the model's own.
    """
    file = folder / (FILES["peft"] if is_lora else "model.safetensors")
    weights = read_weights(file)
    if is_lora:
        from peft import get_peft_model_state_dict, set_peft_model_state_dict

        own = get_peft_model_state_dict(model, save_embedding_layers=False)
        check_fit(file, weights, own)
        set_peft_model_state_dict(model, weights)
    else:
        tied = getattr(model, "_tied_weights_keys", None) or ()
        check_fit(file, weights, model.state_dict(), optional=tied)
        model.load_state_dict(weights, strict=False)


@contextmanager
def _explain_errors(location: str) -> Iterator[None]:
    """Turn any error while a model is loaded into a ConfigError of one line."""
    if is_adapter(Path(location)):
        check_adapter_form(Path(location), "peft")
    notice_offline(location)
    with explain_load_errors(location, on_disk=Path(location).is_dir()):
        yield
