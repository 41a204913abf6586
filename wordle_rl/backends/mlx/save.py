"""Writes and reads models and adapters as mlx-lm does, and merges an adapter into its model."""

from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import dequantize_model, save_config, save_model

from wordle_rl.backends.adapters import ADAPTER, FILES, has_tokenizer, is_adapter
from wordle_rl.backends.loading import (
    VALUE_HEAD,
    check_fit,
    explain_load_errors,
    explain_read_errors,
)
from wordle_rl.backends.mlx.load import LoadedModel, assemble, find_base, load_base
from wordle_rl.backends.saving import save_generation, save_tokenizer
from wordle_rl.runs.files import write_json
from wordle_rl.training.lineage import write_base

Weights = dict[str, mx.array]
_MODEL = "model.safetensors"
VALUE_HEAD_PREFIX = "value_head."  # of the names of its weights


def save_model_or_adapter(folder: Path, loaded: LoadedModel, weights: Weights) -> None:
    """Write the adapter if the model has one, else the whole model. A value head has its own file.

    transformers can read a whole model as written here. wordle-rl export makes an adapter readable
    for peft.
    """
    folder.mkdir(parents=True, exist_ok=True)
    head, weights = _split_off_head(weights)
    if head:
        _write_arrays(folder / VALUE_HEAD, head)
    if loaded.adapter is not None:
        _write_arrays(folder / FILES["mlx"], weights)
        write_json(folder / ADAPTER, loaded.adapter)
        write_base(folder, loaded.base)
        return
    _, arrays = _split_off_head(dict(tree_flatten(loaded.model.parameters())))
    _write_arrays(folder / _MODEL, arrays | weights)
    write_json(folder / "config.json", {**loaded.config, "dtype": "float32"})
    save_generation(folder, loaded.config | loaded.generation, loaded.tokenizer.stop_ids)


def _split_off_head(weights: Weights) -> tuple[Weights, Weights]:
    """A value head's weights by their names in the head, and all others."""
    head = {
        name.removeprefix(VALUE_HEAD_PREFIX): weight
        for name, weight in weights.items()
        if name.startswith(VALUE_HEAD_PREFIX)
    }
    return head, {n: w for n, w in weights.items() if not n.startswith(VALUE_HEAD_PREFIX)}


def _write_arrays(file: Path, weights: Weights) -> None:
    # Python opens the file, because MLX's own errors do not say why a write failed.
    with open(file, "wb") as out:
        mx.save_safetensors(out, weights, {"format": "mlx"})


def read_arrays(file: Path) -> tuple[Weights, dict[str, str]]:
    """Arrays and metadata of a safetensors file. Raises CheckpointError."""
    with explain_read_errors(file):
        # Names the format, which MLX would otherwise guess from the file's name.
        pair: Any = mx.load(str(file), "safetensors", return_metadata=True)
        arrays, metadata = pair
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


def merge_model(source: Path, target: Path, precision: str) -> str:
    """Write the model of a folder without an adapter. Returns the precision of its weights.

    precision: auto keeps the precision of the weights, and of the numbers beside quantised ones.
    Quantised weights are written as numbers of this precision. The sum of base and adapter is
    computed in float32 and rounded once.
    """
    with explain_load_errors(str(source), on_disk=True, library="mlx-lm"):
        base = find_base(source) if is_adapter(source) else source
        model, config = load_base(base)
        if precision == "auto":
            precision = _read_precision(model)
        model.set_dtype(mx.float32)
        if is_adapter(source):
            load_adapters(model, str(source))
            merge_adapter(model)
    dequantize_model(model)
    model.set_dtype(getattr(mx, precision))
    target.mkdir(parents=True)
    save_model(target, model)
    config = {k: v for k, v in config.items() if not k.startswith("quantization")}
    save_config({**config, "dtype": precision}, target / "config.json")
    texts = base if is_adapter(source) and not has_tokenizer(source) else source
    adapter = source if is_adapter(source) else None
    bundle = assemble(model, config, base, tokenizer=texts, adapter=adapter)
    save_generation(target, config | bundle.generation, bundle.tokenizer.stop_ids)
    save_tokenizer(bundle.tokenizer.inner, target)
    return precision


def merge_adapter(model: Any) -> None:
    """Put the sum of weight and adapter into each adapted layer of a float32 model."""
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, LoRALinear)]
    modules = [(name, layer.fuse(dequantize=True)) for name, layer in layers]
    model.update_modules(tree_unflatten(modules))


def _read_precision(model: Any) -> str:
    """The precision of most floating-point weights."""
    sizes: Counter[mx.Dtype] = Counter()
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for weight in weights.values():
        if mx.issubdtype(weight.dtype, mx.floating):
            sizes[weight.dtype] += weight.size
    return str(sizes.most_common(1)[0][0]).rpartition(".")[2]
