"""A frozen base in 4 bits under a LoRA adapter, by bitsandbytes on CUDA and on the CPU.

The base is rounded while it is loaded. Source: QLoRA (arXiv 2305.14314): 4-bit NormalFloat, whose
scales are quantised too. The language-model head and the embedding keep their precision.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from transformers import BitsAndBytesConfig

from wordle_rl.runs.instantiate import ConfigError

_DEVICES = ("cuda", "cpu")


def build_arguments(quantize: str | None, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """What from_pretrained needs to quantise a model on a device; nothing for None.

    dtype: in which the products are computed. Raises ModuleNotFoundError without bitsandbytes.
    """
    if quantize is None:
        return {}
    kind = torch.device(device).type
    if kind not in _DEVICES:
        raise ConfigError(
            f"model.quantize must be null on {kind}, not {quantize}: bitsandbytes has no 4-bit "
            "products for it; use backend.accelerator=cpu, or a quantised model with backend=mlx"
        )
    # bitsandbytes 0.49 calls a function that torch 2.13 is going to remove.
    warnings.filterwarnings("ignore", message="_check_is_size", category=FutureWarning)
    importlib.import_module("bitsandbytes")  # transformers would name no way to install it
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": config, "device_map": {"": device}}


def keep_trainable(model: torch.nn.Module) -> None:
    """Keep gradients right after rollouts with a model that may be quantised.

    On CPUs with AVX-512 and bf16, bitsandbytes packs a layer's weights when it first computes
    without gradients. A packed layer has no backward pass.
    """
    modules: Iterator[Any] = model.modules()
    for module in modules:
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
