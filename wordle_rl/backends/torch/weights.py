"""Reads and writes the weights of torch models, and checks that saved weights fit a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from wordle_rl.backends.adapters import FILES
from wordle_rl.backends.saved_weights import check_model_exists, check_shapes, explain_read_errors


def read_weights(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises CheckpointError."""
    with explain_read_errors(file):
        return load_file(file)


def load_weights(model: Any, folder: Path, *, is_lora: bool) -> None:
    """Load what save_pretrained() wrote to a folder; under LoRA only the adapter `default`.

    Raises CheckpointError, before anything is changed, unless names and shapes are the model's own.
    """
    file = folder / (FILES["peft"] if is_lora else "model.safetensors")
    check_model_exists(file)
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


def check_fit(
    file: Path,
    saved: Mapping[str, torch.Tensor],
    own: Mapping[str, torch.Tensor],
    *,
    optional: Collection[str] = (),
) -> None:
    """Raise CheckpointError unless a file's weights have a model's own names and shapes.

    optional: names that the file may lack.
    """
    saved_shapes = {name: weight.shape for name, weight in saved.items()}
    own_shapes = {name: weight.shape for name, weight in own.items()}
    check_shapes(file, saved_shapes, own_shapes, optional=optional)
