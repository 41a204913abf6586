"""Checks of a checkpoint's weights before a model takes them; for every backend."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from wordle_rl.runs.checkpoints import CheckpointError

VALUE_HEAD = "value_head.safetensors"  # beside the model's own files, whose loaders ignore it


def check_model_exists(file: Path) -> None:
    """Raise CheckpointError when a checkpoint lacks the file that this kind of model needs."""
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: the checkpoint belongs to another kind of model")


def check_value_head_exists(file: Path) -> None:
    """Raise CheckpointError when a checkpoint has no value head."""
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: it was written without a value head")


@contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    """Turn any error in the block into a CheckpointError of one line."""
    try:
        yield
    except Exception as error:  # safetensors, torch and MLX raise errors of different kinds
        raise CheckpointError(f"{file}: cannot be read as safetensors ({error})") from None


def check_shapes(
    file: Path,
    saved: Mapping[str, Sequence[int]],
    expected: Mapping[str, Sequence[int]],
    *,
    optional: Collection[str] = (),
) -> None:
    """Raise CheckpointError unless the file has the model's own names and shapes.

    saved, expected: shape of each weight. optional: names that the file may lack.
    """
    missing = sorted(expected.keys() - saved.keys() - set(optional))
    unexpected = sorted(saved.keys() - expected.keys())
    reshaped = [
        f"{name} is {list(saved[name])} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in saved and tuple(saved[name]) != tuple(shape)
    ]
    if missing or unexpected or reshaped:
        raise CheckpointError(
            f"{file} belongs to another model: missing {missing[:3]}, "
            f"unexpected {unexpected[:3]}, of another shape {reshaped[:3]}"
        )
