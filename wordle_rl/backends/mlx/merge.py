"""Writes whole models as mlx-lm loads them, and opens such a folder with mlx-lm alone."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import dequantize_model, load_model, save_config, save_model
from transformers import AutoTokenizer

from wordle_rl.backends.adapters import is_adapter
from wordle_rl.backends.loading import explain_load_errors
from wordle_rl.backends.mlx.load import GENERATION, assemble, find_base, load_base
from wordle_rl.backends.mlx.policy import MlxPolicy
from wordle_rl.policy.optim import Optim


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
    if (base / GENERATION).is_file():
        shutil.copy(base / GENERATION, target)
    AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(target)
    return precision


def merge_adapter(model: Any) -> None:
    """Put the sum of weight and adapter into each adapted layer of a float32 model."""
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, LoRALinear)]
    merged = [(name, layer.fuse(dequantize=True)) for name, layer in layers]
    model.update_modules(tree_unflatten(merged))


def _read_precision(model: Any) -> str:
    """The precision of most floating-point weights."""
    sizes: Counter[mx.Dtype] = Counter()
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for weight in weights.values():
        if mx.issubdtype(weight.dtype, mx.floating):
            sizes[weight.dtype] += weight.size
    return str(sizes.most_common(1)[0][0]).rpartition(".")[2]


def open_plain(folder: Path, *, max_context: int) -> MlxPolicy:
    """A policy on what mlx-lm makes of a folder by itself, in float32."""
    with explain_load_errors(str(folder), on_disk=True, library="mlx-lm"):
        model, config = load_model(folder)
        model.set_dtype(mx.float32)
        loaded = assemble(model, config, folder, tokenizer=folder)
    return MlxPolicy(loaded, temperature=1.0, optim=Optim(), max_context=max_context)
