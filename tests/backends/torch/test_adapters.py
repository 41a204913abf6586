"""LoRA adapters in files."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.helpers.tiny import llama
from wordle_rl.backends.torch.load import add_lora, load_weights, save_adapter
from wordle_rl.policy.settings import LoraSettings


def test_an_adapter_brings_no_warning_even_if_its_base_is_not_at_its_name(tmp_path: Path) -> None:
    settings = LoraSettings(rank=2, alpha=4, dropout=0.0, targets="all-linear")
    base = llama()
    base.name_or_path = "fetched/a-model"  # a name inside the project, and no folder
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapted = add_lora(base, settings, seed=0)
        save_adapter(adapted, tmp_path)
        again = add_lora(llama(), settings, seed=1)
        again.peft_config["default"].base_model_name_or_path = "fetched/a-model"
        load_weights(again, tmp_path, is_lora=True)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert all("lora_" in name for name in saved)
    for one, other in zip(adapted.parameters(), again.parameters(), strict=True):
        if one.requires_grad:
            assert torch.equal(one, other)
