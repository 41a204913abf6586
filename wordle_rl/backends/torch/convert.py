"""Writes whole models for transformers, with an adapter merged into them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from wordle_rl.backends.adapters import find_base, is_adapter
from wordle_rl.backends.saving import save_model, save_tokenizer
from wordle_rl.backends.torch.load import load_model
from wordle_rl.policy.settings import MAIN, ModelSettings


def merge_model(source: Path, target: Path, precision: str) -> str:
    """Write the model of a folder without an adapter. Returns the precision of its weights.

    precision: auto keeps the precision of the base under an adapter, and of any other model. The
    sum of base and adapter is computed in float32 and rounded once. Raises ValueError if a weight
    is not finite.
    """
    settings = ModelSettings(
        name=source.name, path=str(source), learning_rate=0.0, max_tokens=1, max_context=16
    )
    model: Any
    model, tokenizer = load_model(settings, precision="fp32", device="cpu")
    if precision == "auto":
        base, revision = find_base(source) if is_adapter(source) else (str(source), MAIN)
        config: Any = AutoConfig.from_pretrained(base, revision=revision, trust_remote_code=False)
        dtype = config.dtype or config.get_text_config().dtype or torch.float32
        precision = str(dtype).removeprefix("torch.")
    if hasattr(model, "peft_config"):
        model = merge_adapter(model)
    save_model(model.to(getattr(torch, precision)), target)
    save_tokenizer(tokenizer.inner, target)
    return precision


def merge_adapter(model: Any) -> Any:
    """The model under an adapter, with W + scale B A in the place of each adapted weight W."""
    return model.merge_and_unload(safe_merge=True)
