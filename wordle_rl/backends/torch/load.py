"""Loads models and tokenizers for torch: embedded, untrained, from a folder or from the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from wordle_rl.backends.adapter_conversion import check_adapter_form, is_adapter
from wordle_rl.backends.hf_tokenizer import HFTokenizer, list_stop_ids
from wordle_rl.backends.hub import notice_offline
from wordle_rl.backends.load_errors import explain_load_errors
from wordle_rl.backends.lora import check_loaded_adapter, choose_layers
from wordle_rl.backends.tiny_model import build_model, build_tokenizer
from wordle_rl.backends.torch.quantize import build_arguments, keep_trainable
from wordle_rl.policy.computing import read_layer_shape
from wordle_rl.policy.settings import UNTRAINED, LoraSettings, ModelSettings
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
        inner: Any = build_tokenizer()
        model: Any = build_model(vocab_size=len(inner), seed=settings.seed, **settings.shape)
        model.generation_config.eos_token_id = inner.eos_token_id
        model.generation_config.pad_token_id = inner.pad_token_id
    else:
        frozen = settings.lora is not None or is_adapter(Path(settings.location))
        dtype = torch.bfloat16 if frozen and precision == "bf16" else torch.float32
        quantized = build_arguments(settings.quantize, dtype, device)
        model, inner = _load_pretrained(settings.location, dtype, quantized)
        keep_trainable(model)
    if settings.lora is not None:
        if hasattr(model, "peft_config"):
            loaded = model.peft_config["default"]
            check_loaded_adapter(settings.lora, rank=loaded.r, alpha=loaded.lora_alpha)
        else:
            model = add_lora(model, settings.lora, settings.seed)
    stops = list_stop_ids(model.generation_config.eos_token_id)
    return model.to(device), HFTokenizer(inner, extra_stop_ids=stops)


def load_layer_shape(settings: ModelSettings) -> tuple[int, int]:
    """Width of the model's layers and of their feed-forward layers, read without its weights.

    Raises ConfigError in one line when the model cannot be loaded.
    """
    if settings.path == UNTRAINED:
        return read_layer_shape(settings.shape)
    with _explain_errors(settings.location):
        config = AutoConfig.from_pretrained(_find_base(settings.location), trust_remote_code=False)
        config = config.get_text_config()
        names = ("hidden_size", "intermediate_size")
        return read_layer_shape({name: getattr(config, name, None) for name in names})


def _find_base(location: str) -> str:
    """The model under an adapter. A model without an adapter is its own base."""
    if not is_adapter(Path(location)):
        return location
    from peft import PeftConfig

    base = str(PeftConfig.from_pretrained(location).base_model_name_or_path)
    notice_offline(base)
    return base


def _load_pretrained(
    location: str, dtype: torch.dtype, quantized: dict[str, Any]
) -> tuple[Any, Any]:
    with _explain_errors(location):
        tokenizer = AutoTokenizer.from_pretrained(location, trust_remote_code=False)
        if is_adapter(Path(location)):
            return _load_adapted(location, dtype, quantized), tokenizer
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            location, dtype=dtype, output_loading_info=True, trust_remote_code=False, **quantized
        )
    model, found = loaded
    if missing := sorted(found["missing_keys"]):
        raise ConfigError(
            f"model.path={location} lacks {len(missing)} of the weights that its config.json asks "
            f"for, such as {missing[0]}: they are another model's"
        )
    return model, tokenizer


@contextmanager
def _explain_errors(location: str) -> Iterator[None]:
    """Turn any error while a model is loaded into a ConfigError of one line."""
    if is_adapter(Path(location)):
        check_adapter_form(Path(location), "peft")
    notice_offline(location)
    with explain_load_errors(location, on_disk=Path(location).is_dir()):
        yield


def _load_adapted(location: str, dtype: torch.dtype, quantized: dict[str, Any]) -> Any:
    from peft import PeftModel

    inner = AutoModelForCausalLM.from_pretrained(
        _find_base(location), dtype=dtype, trust_remote_code=False, **quantized
    )
    return PeftModel.from_pretrained(inner, location, is_trainable=True)


def add_lora(model: Any, settings: LoraSettings, seed: int) -> Any:
    """The model with a fresh adapter, whose weights are drawn from the seed."""
    from peft import LoraConfig, get_peft_model

    linear = [n for n, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    choose_layers(settings.targets, linear)  # peft ignores targets that fit nothing
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]  # peft takes floats too
        lora_dropout=settings.dropout,
        target_modules=settings.targets,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(model, config)
