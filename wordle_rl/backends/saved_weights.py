"""Weights in files: read without running anything, and checked before a model takes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from wordle_rl.runs.checkpoints import CheckpointError

VALUE_HEAD = "value_head.safetensors"  # beside the model's own files, whose loaders ignore it


@contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    """Raise CheckpointError, in one line, if the file is missing or the block cannot read it."""
    if not file.is_file():
        kind = "without a value head" if file.name == VALUE_HEAD else "by another kind of model"
        raise CheckpointError(f"{file} is missing: the checkpoint was written {kind}")
    try:
        yield
    except Exception as error:  # safetensors, torch and MLX raise errors of different kinds
        raise CheckpointError(f"{file}: cannot be read as safetensors ({error})") from None


def read_weights(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises CheckpointError."""
    with explain_read_errors(file):
        return load_file(file)


def check_fit(
    file: Path,
    saved: Mapping[str, Any],
    own: Mapping[str, Any],
    *,
    optional: Collection[str] = (),
) -> None:
    """Raise CheckpointError unless a file's weights have a model's own names and shapes.

    saved, own: arrays of any library. optional: names that the file may lack.
    """
    missing = sorted(own.keys() - saved.keys() - set(optional))
    unexpected = sorted(saved.keys() - own.keys())
    reshaped = [
        f"{name} is {list(saved[name].shape)} instead of {list(weight.shape)}"
        for name, weight in own.items()
        if name in saved and tuple(saved[name].shape) != tuple(weight.shape)
    ]
    if missing or unexpected or reshaped:
        raise CheckpointError(
            f"{file} belongs to another model: missing {missing[:3]}, "
            f"unexpected {unexpected[:3]}, of another shape {reshaped[:3]}"
        )
