"""Loads models and tokenizers: the embedded one, a new one, or any from the hub or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.tiny_model import build_model, build_tokenizer
from wordle_rl.build import ConfigError
from wordle_rl.settings import UNTRAINED, LoraSettings, ModelSettings


def load_model(
    settings: ModelSettings, *, precision: str, device: str
) -> tuple[torch.nn.Module, HFTokenizer]:
    """The model on its device, ready to train, and its tokenizer.

    Fully trained models come in float32; the frozen base under LoRA in the asked precision, the
    adapters in float32. Raises ConfigError in one line when the model cannot be had.
    """
    transformers.utils.logging.disable_progress_bar()
    if settings.path == UNTRAINED:
        inner: Any = build_tokenizer()
        model: Any = build_model(vocab_size=len(inner), seed=settings.seed, **settings.shape)
        model.generation_config.eos_token_id = inner.eos_token_id
        model.generation_config.pad_token_id = inner.pad_token_id
    else:
        frozen = settings.lora is not None or _is_adapter(settings.location)
        dtype = torch.bfloat16 if frozen and precision == "bf16" else torch.float32
        model, inner = _pretrained(settings.location, dtype)
    if settings.lora is not None and not hasattr(model, "peft_config"):
        model = _with_lora(model, settings.lora, settings.seed)
    stops = model.generation_config.eos_token_id
    stops = tuple(stops) if isinstance(stops, list | tuple) else (stops,)
    tokenizer = HFTokenizer(inner, extra_stop_ids=tuple(i for i in stops if i is not None))
    return model.to(device), tokenizer


def _is_adapter(location: str) -> bool:
    return (Path(location) / "adapter_config.json").is_file()


def _pretrained(location: str, dtype: torch.dtype) -> tuple[Any, Any]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(location)
        if _is_adapter(location):
            return _adapted(location, dtype), tokenizer
        return AutoModelForCausalLM.from_pretrained(location, dtype=dtype), tokenizer
    except (OSError, ValueError) as error:
        if Path(location).is_dir():
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"model.path={location} cannot be loaded: {reason}") from None
        raise ConfigError(
            f"model.path={location} is neither a folder nor in the local cache, and the hub cannot "
            f"be reached: connect and run `hf download {location}`, or give a folder that holds it"
            " with model.path=/path/to/it"
        ) from None


def _adapted(location: str, dtype: torch.dtype) -> Any:
    from peft import PeftConfig, PeftModel

    base = PeftConfig.from_pretrained(location).base_model_name_or_path
    inner = AutoModelForCausalLM.from_pretrained(str(base), dtype=dtype)
    return PeftModel.from_pretrained(inner, location, is_trainable=True)


def _with_lora(model: Any, settings: LoraSettings, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

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
