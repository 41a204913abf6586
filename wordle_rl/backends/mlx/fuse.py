"""Merges an adapter into the weights of its model, and measures what rounding loses.

The same arithmetic as mlx_lm.fuse: W + scale (a b) transposed, rounded to the precision of W.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_unflatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import save_config, save_model

from wordle_rl.backends.adapter_conversion import read_adapter_form
from wordle_rl.backends.load_errors import explain_load_errors
from wordle_rl.backends.mlx.load import find_base, is_quantised, load_base
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.policy.stages import stages_of, write_stages
from wordle_rl.runs.instantiate import ConfigError

_LOST = 0.01  # share of the adapter's change; rounding that loses more gets a warning
_PROBE = 64  # tokens whose log-probabilities are compared


def fuse_adapter(adapter: Path, target: Path) -> str:
    """Write the fused model into a new folder. Returns a report for the user."""
    if target.exists():
        raise ConfigError(f"{target} exists already: name a new folder")
    if read_adapter_form(adapter) != "mlx":
        raise ConfigError(f"{adapter}: convert the adapter to mlx-lm's form first")
    base = find_base(adapter)
    with explain_load_errors(str(adapter), on_disk=True, library="mlx-lm"):
        model, config = load_base(base)
        load_adapters(model, str(adapter))
    model.eval()
    draw = generator(Purpose.PROBE, seed=0)
    ids = mx.array(draw.integers(0, _read_vocabulary_size(config), (1, _PROBE)))
    before = _score_tokens(model, ids)
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, LoRALinear)]
    quantised = is_quantised(model)
    fused = [(name, layer.fuse()) for name, layer in layers]
    lost = max(
        _measure_loss(layer, new) for (_, layer), (_, new) in zip(layers, fused, strict=True)
    )
    model.update_modules(tree_unflatten(fused))
    gap = float(mx.max(mx.abs(before - _score_tokens(model, ids))))
    target.mkdir(parents=True)
    for file in sorted(adapter.iterdir()):  # the tokenizer
        if file.is_file() and not file.name.startswith("adapter"):
            shutil.copy(file, target)
    save_model(target, model)
    save_config(config, target / "config.json")
    write_stages(target, stages_of(adapter) or stages_of(base))
    if (base / "generation_config.json").is_file():
        shutil.copy(base / "generation_config.json", target)
    report = (
        f"{target}: log-probabilities differ by at most {gap:.2g} from the model with its adapter"
    )
    if lost > _LOST:
        dtype: Any = fused[0][1].weight.dtype
        kind = "quantised" if quantised else str(dtype).rpartition(".")[2]
        report += (
            f"\nwarning: rounding to {kind} weights loses up to {lost:.0%} of what the adapter "
            "changes in a layer; the model with its adapter beside it is exact"
        )
    return report


def _read_vocabulary_size(config: dict[str, Any]) -> int:
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])


def _score_tokens(model: Any, ids: mx.array) -> mx.array:
    """float32 log-probability [1, T - 1] of each token after the first."""
    logits = model(ids)[:, :-1].astype(mx.float32)
    chosen = mx.take_along_axis(logits, ids[:, 1:, None], axis=-1)[..., 0]
    result = chosen - mx.logsumexp(logits, axis=-1)
    mx.eval(result)
    return result


def _measure_loss(layer: Any, fused: Any) -> float:
    """How much of the adapter's change of a weight rounding loses, as a ratio of norms."""
    change = (layer.scale * layer.lora_b.T) @ layer.lora_a.T
    wanted = _read_weight(layer.linear) + change
    size = float(mx.linalg.norm(change))
    return float(mx.linalg.norm(_read_weight(fused) - wanted)) / size if size else 0.0


def _read_weight(layer: Any) -> mx.array:
    """The float32 weight of a linear layer, quantised or not."""
    if not hasattr(layer, "bits"):
        return layer.weight.astype(mx.float32)
    return mx.dequantize(
        layer.weight, layer.scales, layer.get("biases"),
        group_size=layer.group_size, bits=layer.bits, mode=layer.mode,
    ).astype(mx.float32)  # fmt: skip
