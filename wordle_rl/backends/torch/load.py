"""Loads models and tokenizers: the embedded one, a new one, or any from the hub or a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from wordle_rl.backends.adapters import ADAPTER, adapter_kind
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.hub import notice_offline
from wordle_rl.backends.tiny_model import build_model, build_tokenizer
from wordle_rl.policy.computing import layer_shape
from wordle_rl.policy.settings import HEAD, UNTRAINED, LoraSettings, ModelSettings
from wordle_rl.runs.full_disk import full_disk
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.libraries import missing


def load_model(
    settings: ModelSettings, *, precision: str, device: str
) -> tuple[torch.nn.Module, HFTokenizer]:
    """The model on its device, ready to train, and its tokenizer.

    Fully trained models come in float32; the frozen base under LoRA in the asked precision, the
    adapters in float32. Raises ConfigError in one line when the model cannot be had.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # what matters of its reports is raised here
    if settings.path == UNTRAINED:
        inner: Any = build_tokenizer()
        model: Any = build_model(vocab_size=len(inner), seed=settings.seed, **settings.shape)
        model.generation_config.eos_token_id = inner.eos_token_id
        model.generation_config.pad_token_id = inner.pad_token_id
    else:
        frozen = settings.lora is not None or _is_adapter(settings.location)
        dtype = torch.bfloat16 if frozen and precision == "bf16" else torch.float32
        model, inner = _pretrained(settings.location, dtype)
    if settings.lora is not None:
        if hasattr(model, "peft_config"):
            _check_adapter(model, settings.lora)
        else:
            model = _with_lora(model, settings.lora, settings.seed)
    stops = model.generation_config.eos_token_id
    stops = tuple(stops) if isinstance(stops, list | tuple) else (stops,)
    tokenizer = HFTokenizer(inner, extra_stop_ids=tuple(i for i in stops if i is not None))
    return model.to(device), tokenizer


def matrix_shape(settings: ModelSettings) -> tuple[int, int]:
    """Width of the model's layers and of their feed-forward layers, read without its weights.

    Raises ConfigError in one line when the model cannot be had.
    """
    if settings.path == UNTRAINED:
        return layer_shape(settings.shape)
    with _one_line(settings.location):
        config = AutoConfig.from_pretrained(_base_of(settings.location), trust_remote_code=False)
        config = config.get_text_config()
        names = ("hidden_size", "intermediate_size")
        return layer_shape({name: getattr(config, name, None) for name in names})


def _base_of(location: str) -> str:
    """The model under an adapter; any other model is its own base."""
    if not _is_adapter(location):
        return location
    from peft import PeftConfig

    base = str(PeftConfig.from_pretrained(location).base_model_name_or_path)
    notice_offline(base)
    return base


def _is_adapter(location: str) -> bool:
    return (Path(location) / ADAPTER).is_file()


def _pretrained(location: str, dtype: torch.dtype) -> tuple[Any, Any]:
    with _one_line(location):
        tokenizer = AutoTokenizer.from_pretrained(location, trust_remote_code=False)
        if _is_adapter(location):
            return _adapted(location, dtype), tokenizer
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            location, dtype=dtype, output_loading_info=True, trust_remote_code=False
        )
    model, found = loaded
    if missing := sorted(found["missing_keys"]):
        raise ConfigError(
            f"model.path={location} lacks {len(missing)} of the weights that its config.json asks "
            f"for, such as {missing[0]}: they are another model's"
        )
    return model, tokenizer


@contextmanager
def _one_line(location: str) -> Iterator[None]:
    """Turns whatever goes wrong while a model is loaded into a ConfigError of one line."""
    if _is_adapter(location) and adapter_kind(Path(location)) == "mlx":
        raise ConfigError(
            f"model.path={location} is an adapter in mlx-lm's form: convert it with "
            f"python -m wordle_rl.convert {location} <new folder>, or use backend=mlx"
        )
    notice_offline(location)
    try:
        yield
    except Exception as error:  # whatever the parsers of three libraries raise about bad files
        if full_disk(error) or (isinstance(error, ModuleNotFoundError) and missing(error)):
            raise
        if Path(location).is_dir():
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"model.path={location} cannot be loaded: {reason}") from error
        raise ConfigError(
            f"model.path={location} is neither a folder nor in the local cache, and the hub cannot "
            f"be reached: connect and run `hf download {location}`, or give a folder that holds it"
            " with model.path=/path/to/it"
        ) from error


def _check_adapter(model: Any, settings: LoraSettings) -> None:
    """An adapter that was loaded keeps its form, so the settings must not ask for another."""
    loaded = model.peft_config["default"]
    for name, have, asked in (
        ("rank", loaded.r, settings.rank),
        ("alpha", loaded.lora_alpha, settings.alpha),
    ):
        if have != asked:
            raise ConfigError(f"model.lora.{name} must be {have}, as in model.path, not {asked}")


def _adapted(location: str, dtype: torch.dtype) -> Any:
    from peft import PeftModel

    inner = AutoModelForCausalLM.from_pretrained(
        _base_of(location), dtype=dtype, trust_remote_code=False
    )
    return PeftModel.from_pretrained(inner, location, is_trainable=True)


def _with_lora(model: Any, settings: LoraSettings, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    _check_targets(model, settings.targets)
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


def _check_targets(model: torch.nn.Module, targets: str | list[str]) -> None:
    """Each name, or the pattern, must fit a linear layer; peft would pass over some of them."""
    if targets == "all-linear":
        return
    layers = [n for n, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    if isinstance(targets, str):
        wrong = [] if any(re.fullmatch(targets, layer) for layer in layers) else [targets]
    else:
        wrong = [t for t in targets if not any(f".{layer}".endswith(f".{t}") for layer in layers)]
    if wrong:
        names = sorted({layer.rpartition(".")[2] for layer in layers} - {HEAD})
        raise ConfigError(
            f"model.lora.targets must be of {', '.join(names)}, or all-linear, not {wrong[0]!r}"
        )
