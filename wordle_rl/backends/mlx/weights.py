"""Models and adapters on disk, as mlx-lm reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from wordle_rl.backends.adapters import ADAPTER, FILES
from wordle_rl.backends.mlx.load import Loaded
from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.files import write_json

Weights = dict[str, mx.array]
_MODEL = "model.safetensors"
HEAD = "value_head."  # begins the names of its weights
_HEAD_FILE = "value_head.safetensors"  # as the other backend writes it


def save_model(folder: Path, loaded: Loaded, weights: Weights) -> None:
    """Write the adapter, or the whole model when that is what was trained.

    transformers and peft read the whole model too; the adapter is theirs after wordle_rl.convert.
    A value head lies beside it, in a file of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    head = {n.removeprefix(HEAD): w for n, w in weights.items() if n.startswith(HEAD)}
    if head:
        _write(folder / _HEAD_FILE, head)
        weights = _without_head(weights)
    if loaded.adapter is not None:
        _write(folder / FILES["mlx"], weights)
        write_json(folder / ADAPTER, loaded.adapter)
        return
    everything = _without_head(dict(tree_flatten(loaded.model.parameters()))) | weights
    _write(folder / _MODEL, everything)
    write_json(folder / "config.json", {**loaded.config, "dtype": "float32"})
    if loaded.generation is not None:
        write_json(folder / "generation_config.json", loaded.generation)


def _without_head(weights: Weights) -> Weights:
    return {name: weight for name, weight in weights.items() if not name.startswith(HEAD)}


def _write(file: Path, weights: Weights) -> None:
    # through a file of Python's, whose errors say why they came
    with open(file, "wb") as out:
        mx.save_safetensors(out, weights, {"format": "mlx"})


def read_arrays(file: Path) -> tuple[Weights, dict[str, str]]:
    """Arrays and remarks of a safetensors file. Raises CheckpointError."""
    try:
        # The format is named, as MLX would choose it by the file's name.
        loaded: Any = mx.load(str(file), "safetensors", return_metadata=True)
        arrays, remarks = loaded
        mx.eval(arrays)  # the numbers are read only now
    except Exception as error:  # MLX raises a plain RuntimeError for most
        raise CheckpointError(f"{file}: cannot be read as safetensors ({error})") from None
    return arrays, remarks


def load_weights(folder: Path, expected: Weights, *, is_lora: bool) -> Weights:
    """What save_model() wrote of the trained weights.

    Raises CheckpointError unless names and shapes are the model's own.
    """
    file = folder / (FILES["mlx"] if is_lora else _MODEL)
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: the checkpoint belongs to another kind of model")
    weights, _ = read_arrays(file)
    if any(name.startswith(HEAD) for name in expected):
        head_file = folder / _HEAD_FILE
        if not head_file.is_file():
            raise CheckpointError(f"{head_file} is missing: it was written without a value head")
        head, _ = read_arrays(head_file)
        weights |= {HEAD + name: weight for name, weight in head.items()}
    missing = sorted(expected.keys() - weights.keys())
    unexpected = sorted(weights.keys() - expected.keys())
    reshaped = [
        f"{name} is {list(weights[name].shape)} instead of {list(weight.shape)}"
        for name, weight in expected.items()
        if name in weights and weights[name].shape != weight.shape
    ]
    if missing or unexpected or reshaped:
        raise CheckpointError(
            f"{file} belongs to another model: missing {missing[:3]}, "
            f"unexpected {unexpected[:3]}, of another shape {reshaped[:3]}"
        )
    # Sums go in the order of these names.
    return {name: weights[name].astype(weight.dtype) for name, weight in expected.items()}
