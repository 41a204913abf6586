"""LoRA adapters on torch models, through peft: fresh ones, and ones from a folder."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from wordle_rl.backends.adapters import (
    ADAPTER,
    FILES,
    check_weights_fit,
    choose_layers,
    find_base_name,
    read_adapter_config,
    read_adapter_weights,
)
from wordle_rl.policy.settings import MAIN, LoraSettings, locate, portable_name
from wordle_rl.runs.files import write_json
from wordle_rl.runs.instantiate import ConfigError

LINEAR = (torch.nn.Linear, Conv1D)  # GPT-2 has the second kind, whose weights are transposed


def find_base(folder: Path) -> tuple[str, str]:
    """Location and revision of the model under an adapter in peft's form."""
    from peft import PeftConfig

    name = find_base_name(folder, "peft")
    revision = PeftConfig.from_pretrained(str(folder)).revision
    return locate(name), revision or MAIN


def load_adapter(model: Any, folder: Path) -> Any:
    """The model with the adapter of a folder, ready to train.

    Raises ConfigError for an adapter with other ranks than its config says, or of another model.
    """
    from peft import PeftModel, get_peft_model_state_dict

    try:
        with _without_warnings():
            adapted: Any = PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    except RuntimeError as error:  # a weight of another shape
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"model.path={folder}: the adapter was trained on another model than "
            f"{find_base_name(folder, 'peft')} ({reason})"
        ) from None
    if (folder / FILES["peft"]).is_file():  # peft also reads adapter_model.bin
        saved = {n: w for n, w in read_adapter_weights(folder, "peft").items() if "lora_" in n}
        own = get_peft_model_state_dict(adapted, save_embedding_layers=False)
        check_weights_fit(folder, saved, own)
    return adapted


def add_lora(model: Any, settings: LoraSettings, seed: int, revision: str = MAIN) -> Any:
    """The model with a fresh adapter, whose weights are drawn from the seed.

    revision: of the base on the hub; the adapter's config records it.
    """
    from peft import LoraConfig, get_peft_model

    modules = dict(model.named_modules())
    trunk = next(name for name, module in modules.items() if module is model.get_decoder())
    linear = [
        name
        for name, module in modules.items()
        if isinstance(module, LINEAR) and name.startswith(f"{trunk}.")
    ]
    choose_layers(settings.targets, linear)  # peft ignores targets that fit nothing
    transposed = [isinstance(modules[name], Conv1D) for name in linear]
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]  # peft takes floats too
        lora_dropout=settings.dropout,
        target_modules=settings.targets,
        # A model with images has linear layers of the same names outside its language model.
        exclude_modules=rf"(?!{re.escape(trunk)}\.).*" if "." in trunk else None,
        fan_in_fan_out=any(transposed),
        task_type="CAUSAL_LM",
        revision=None if revision == MAIN else revision,
    )
    with torch.random.fork_rng(devices=[]), _without_warnings():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide two warnings of peft 0.21: of a name that changes, and of keys that are refused here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found missing adapter keys", UserWarning)
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter `default` as peft loads it.

    Its config names an embedded or a fetched base in a way that other machines understand.
    """
    # The vocabulary is never changed, so peft need not look for the base to compare it.
    model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False)
    config = read_adapter_config(folder)
    name = config["base_model_name_or_path"]
    if name and portable_name(name) != name:
        write_json(folder / ADAPTER, config | {"base_model_name_or_path": portable_name(name)})
