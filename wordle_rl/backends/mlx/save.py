"""Writes and reads models and adapters as mlx-lm does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from wordle_rl.backends.adapters import ADAPTER, FILES
from wordle_rl.backends.mlx.load import GENERATION, LoadedModel
from wordle_rl.backends.saved_weights import VALUE_HEAD, check_fit, explain_read_errors
from wordle_rl.runs.files import write_json

Weights = dict[str, mx.array]
_MODEL = "model.safetensors"
VALUE_HEAD_PREFIX = "value_head."  # of the names of its weights


def save_model_or_adapter(folder: Path, loaded: LoadedModel, weights: Weights) -> None:
    """Write the adapter if the model has one, else the whole model. A value head has its own file.

    transformers can read a whole model as written here. wordle-rl export makes an adapter readable
    for peft.
    """
    folder.mkdir(parents=True, exist_ok=True)
    head = {
        name.removeprefix(VALUE_HEAD_PREFIX): weight
        for name, weight in weights.items()
        if name.startswith(VALUE_HEAD_PREFIX)
    }
    if head:
        _write_arrays(folder / VALUE_HEAD, head)
        weights = _drop_value_head(weights)
    if loaded.adapter is not None:
        _write_arrays(folder / FILES["mlx"], weights)
        write_json(folder / ADAPTER, loaded.adapter)
        return
    everything = _drop_value_head(dict(tree_flatten(loaded.model.parameters()))) | weights
    _write_arrays(folder / _MODEL, everything)
    write_json(folder / "config.json", {**loaded.config, "dtype": "float32"})
    if loaded.generation is not None:
        write_json(folder / GENERATION, loaded.generation)


def _drop_value_head(weights: Weights) -> Weights:
    return {n: weight for n, weight in weights.items() if not n.startswith(VALUE_HEAD_PREFIX)}


def _write_arrays(file: Path, weights: Weights) -> None:
    # Python opens the file, because MLX's own errors do not say why a write failed.
    with open(file, "wb") as out:
        mx.save_safetensors(out, weights, {"format": "mlx"})


def read_arrays(file: Path) -> tuple[Weights, dict[str, str]]:
    """Arrays and metadata of a safetensors file. Raises CheckpointError."""
    with explain_read_errors(file):
        # Names the format, which MLX would otherwise guess from the file's name.
        loaded: Any = mx.load(str(file), "safetensors", return_metadata=True)
        arrays, metadata = loaded
        mx.eval(arrays)  # MLX reads the numbers only now
    return arrays, metadata


def load_weights(folder: Path, expected: Weights, *, is_lora: bool) -> Weights:
    """Read the trained weights that save_model_or_adapter() wrote.

    expected: the model's weights. Raises CheckpointError if names or shapes differ from them.
    """
    file = folder / (FILES["mlx"] if is_lora else _MODEL)
    weights, _ = read_arrays(file)
    if any(name.startswith(VALUE_HEAD_PREFIX) for name in expected):
        head, _ = read_arrays(folder / VALUE_HEAD)
        weights |= {VALUE_HEAD_PREFIX + name: weight for name, weight in head.items()}
    check_fit(file, weights, expected)
    # In the order of these names, because sums over all weights follow it.
    return {name: weights[name].astype(weight.dtype) for name, weight in expected.items()}
