"""Policies on MLX that hold the weights of tiny torch models; for tests of both backends."""

import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tests.helpers.tiny import qwen_like_tokenizer, take_machine_settings
from wordle_rl.backends.adapters import convert_adapter
from wordle_rl.backends.mlx import load as mlx_models
from wordle_rl.backends.mlx.machine import MlxMachine
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.settings import ModelSettings
from wordle_rl.policy.tokenizer import HFTokenizer

mx.disable_compile()  # on a CPU a compiler builds each fused operation


def settings_of(path: str | Path, **fields: Any) -> ModelSettings:
    return ModelSettings(
        name="tiny", path=str(path), learning_rate=1e-2, max_tokens=8, max_context=256, **fields
    )


def loaded_from(model: Any) -> mlx_models.LoadedModel:
    """A torch model, or peft model, by way of the disk."""
    with tempfile.TemporaryDirectory() as name:
        base, adapter = Path(name, "base"), Path(name, "mlx")
        qwen_like_tokenizer().save_pretrained(base)
        if not hasattr(model, "peft_config"):
            model.save_pretrained(base)
            return mlx_models.load_model(settings_of(base), precision="fp32")
        save_base(model, base)
        model.save_pretrained(Path(name, "peft"), selected_adapters=["default"])
        convert_adapter(Path(name, "peft"), adapter, base=str(base))
        return mlx_models.load_model(settings_of(adapter), precision="fp32")


def save_base(model: Any, path: Path) -> None:
    """The model under an adapter, as it was before."""
    base = model.get_base_model()
    weights = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in base.state_dict().items()
        if ".lora_" not in name
    }
    type(base).from_pretrained(None, config=base.config, state_dict=weights).save_pretrained(path)


def mlx_policy_of(
    model: Any, tokenizer: HFTokenizer | None = None, *, temperature: float = 1.0, **settings: Any
) -> Policy:
    """tiny.policy_of on MLX."""
    machine = MlxMachine(loaded_from(model), **take_machine_settings(settings))
    machine.tokenizer = tokenizer or HFTokenizer(qwen_like_tokenizer())
    return Policy(machine, temperature=temperature, **settings)


def mlx_gradients(policy: Policy, batch: Any, algorithm: Any) -> dict[str, np.ndarray]:
    """The gradient that an update would apply, by parameter; the weights stay as they are."""
    grads: dict[str, np.ndarray] = {}
    policy.machine.apply_gradients = lambda g: grads.update({n: np.array(v) for n, v in g.items()})
    try:
        policy.update(batch, algorithm)
    finally:
        del policy.machine.apply_gradients
    return grads
