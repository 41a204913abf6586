"""Puts saved weights back into a model, or says that they belong to another one."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from wordle_rl.runs.checkpoints import CheckpointError


def read_weights(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises CheckpointError."""
    try:
        return load_file(file)
    except Exception as error:  # safetensors has errors of its own, and passes on those of torch
        raise CheckpointError(f"{file}: cannot be read as safetensors ({error})") from None


def load_weights(model: Any, folder: Path, *, is_lora: bool) -> None:
    """Load what save_pretrained() wrote to a folder, the adapter `default` alone under LoRA.

    Raises CheckpointError, before anything is changed, unless names and shapes are the model's own.
    """
    file = folder / ("adapter_model.safetensors" if is_lora else "model.safetensors")
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: the checkpoint belongs to another kind of model")
    weights = read_weights(file)
    if is_lora:
        from peft import get_peft_model_state_dict, set_peft_model_state_dict

        _check(file, weights, get_peft_model_state_dict(model), tied=())
        set_peft_model_state_dict(model, weights)
    else:
        tied = set(getattr(model, "_tied_weights_keys", None) or ())
        _check(file, weights, model.state_dict(), tied=tied)
        model.load_state_dict(weights, strict=False)


def _check(
    file: Path,
    weights: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    *,
    tied: Collection[str],
) -> None:
    missing = sorted(expected.keys() - weights.keys() - set(tied))
    unexpected = sorted(weights.keys() - expected.keys())
    reshaped = [
        f"{name} is {list(weights[name].shape)} instead of {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if missing or unexpected or reshaped:
        raise CheckpointError(
            f"{file} belongs to another model: missing {missing[:3]}, "
            f"unexpected {unexpected[:3]}, of another shape {reshaped[:3]}"
        )


def copy_as_bfloat16(source: Path, target: Path) -> int:
    """Write a folder's model in bfloat16, and its tokenizer, to another. Returns the vocabulary."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return len(tokenizer)
