"""Puts an adapter into the weights of its model, and says what the rounding costs.

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

from wordle_rl.backends.adapters import adapter_kind
from wordle_rl.backends.mlx.load import base_of, is_quantised, load_base, one_line
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.policy.stages import stages_of, write_stages
from wordle_rl.runs.instantiate import ConfigError

_LOST = 0.01  # share of the adapter's change that may be lost to rounding without a warning
_PROBE = 64  # tokens whose log-probabilities are compared


def fuse(adapter: Path, target: Path) -> str:
    """Write the fused model into a new folder; returns what to say about it."""
    if target.exists():
        raise ConfigError(f"{target} exists already: name a new folder")
    if adapter_kind(adapter) != "mlx":
        raise ConfigError(f"{adapter}: convert the adapter to mlx-lm's form first")
    base = base_of(adapter)
    with one_line(str(adapter)):
        model, config = load_base(base)
        load_adapters(model, str(adapter))
    model.eval()
    draw = generator(Purpose.PROBE, seed=0)
    ids = mx.array(draw.integers(0, config_vocabulary(config), (1, _PROBE)))
    before = _logprobs(model, ids)
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, LoRALinear)]
    quantised = is_quantised(model)
    fused = [(name, layer.fuse()) for name, layer in layers]
    lost = max(
        lost_to_rounding(layer, new) for (_, layer), (_, new) in zip(layers, fused, strict=True)
    )
    model.update_modules(tree_unflatten(fused))
    gap = float(mx.max(mx.abs(before - _logprobs(model, ids))))
    target.mkdir(parents=True)
    for file in sorted(adapter.iterdir()):  # the tokenizer
        if file.is_file() and not file.name.startswith("adapter"):
            shutil.copy(file, target)
    save_model(target, model)
    save_config(config, target / "config.json")
    write_stages(target, stages_of(adapter) or stages_of(base))
    if (base / "generation_config.json").is_file():
        shutil.copy(base / "generation_config.json", target)
    said = f"{target}: log-probabilities differ by at most {gap:.2g} from those with the adapter"
    if lost > _LOST:
        dtype: Any = fused[0][1].weight.dtype
        kind = "quantised" if quantised else str(dtype).rpartition(".")[2]
        said += (
            f"\nwarning: rounding to {kind} weights loses up to {lost:.0%} of what the adapter "
            "changes in a layer; played with its adapter the model is exact"
        )
    return said


def config_vocabulary(config: dict[str, Any]) -> int:
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])


def _logprobs(model: Any, ids: mx.array) -> mx.array:
    """float32 [T-1] of each token given those before it."""
    logits = model(ids)[:, :-1].astype(mx.float32)
    chosen = mx.take_along_axis(logits, ids[:, 1:, None], axis=-1)[..., 0]
    result = chosen - mx.logsumexp(logits, axis=-1)
    mx.eval(result)
    return result


def lost_to_rounding(layer: Any, fused: Any) -> float:
    """Norm of what rounding changes over the norm of the adapter's change of a weight."""
    change = (layer.scale * layer.lora_b.T) @ layer.lora_a.T
    wanted = _weight(layer.linear) + change
    size = float(mx.linalg.norm(change))
    return float(mx.linalg.norm(_weight(fused) - wanted)) / size if size else 0.0


def _weight(layer: Any) -> mx.array:
    if not hasattr(layer, "bits"):
        return layer.weight.astype(mx.float32)
    return mx.dequantize(
        layer.weight, layer.scales, layer.get("biases"),
        group_size=layer.group_size, bits=layer.bits, mode=layer.mode,
    ).astype(mx.float32)  # fmt: skip
