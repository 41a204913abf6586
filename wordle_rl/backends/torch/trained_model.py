"""A torch model in training: its weights, the copy that computes with them, and the reference."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wordle_rl.backends.torch.adapters import save_adapter
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.fast.merged_lora import merge_adapter, refresh_sums
from wordle_rl.backends.torch.fast.rollouts import can_be_fast
from wordle_rl.backends.torch.load import load_weights
from wordle_rl.policy.computing import Precision


class TrainedModel:
    """One model, fully trained or with a LoRA adapter. Trained weights are float32.

    With precision bf16 a fully trained model computes through a bfloat16 copy. Under LoRA the
    frozen base was loaded in bfloat16 already. On the CPU it computes through sums of base and
    adapter where it can, elsewhere through peft.
    """

    def __init__(self, model: nn.Module, precision: Precision, *, checkpointing: bool) -> None:
        """checkpointing: whether the backward pass computes each layer again."""
        self.model = model
        self._is_lora = hasattr(model, "peft_config")
        self._has_copy = precision == "bf16" and not self._is_lora
        model.eval()  # dropout stays off: scores must not depend on chance
        on_cpu = next(model.parameters()).device.type == "cpu"
        self._merged = merge_for_speed(model) if self._is_lora and on_cpu else None
        if self._merged is not None:
            computes = self._merged
        else:
            computes = _copy_in_bfloat16(model) if self._has_copy else model
        self.lm = CausalLM(computes, checkpointing=checkpointing)
        self._reference: CausalLM | None = None

    def keep_reference(self) -> None:
        """Make the current weights the reference."""
        if self._merged is not None:
            self._reference = CausalLM(merge_adapter(self.model))
            return
        if not self._is_lora:
            frozen = copy.deepcopy(self.lm.model).requires_grad_(False)
            self._reference = CausalLM(frozen)
            return
        model: Any = self.model
        if "reference" not in model.peft_config:
            model.add_adapter("reference", model.peft_config["default"])
            model.eval()  # the new adapter comes with dropout on
        state = model.state_dict()
        with torch.no_grad():
            for name, tensor in state.items():
                if ".reference." in name:
                    tensor.copy_(state[name.replace(".reference.", ".default.")])
        model.set_adapter("default")
        for name, parameter in model.named_parameters():
            if ".reference." in name:
                parameter.requires_grad_(False)
        self._reference = self.lm

    @contextmanager
    def use_reference(self) -> Iterator[CausalLM]:
        """The reference model, which under LoRA takes the policy's place during the block."""
        if self._reference is None:
            raise RuntimeError("keep_reference() was not called before a reference score")
        if self._reference is not self.lm:
            yield self._reference
            return
        model: Any = self.model
        model.set_adapter("reference", inference_mode=True)
        try:
            yield self._reference
        finally:
            model.set_adapter("default")

    def gather_gradients(self) -> None:
        """Add the copy's gradients to the gradients of the float32 weights."""
        if not self._has_copy:
            return
        for copied, master in zip(self.lm.model.parameters(), self.model.parameters(), strict=True):
            if copied.grad is not None:
                gradient = copied.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                copied.grad = None

    def drop_copied_gradients(self) -> None:
        """Forget gradients of the copy that were not gathered."""
        if self._has_copy:
            self.lm.model.zero_grad()

    @torch.no_grad()
    def refresh_copy(self) -> None:
        """Bring the float32 weights into the copy, after they changed."""
        if self._merged is not None:
            refresh_sums(self._merged)
        if not self._has_copy:
            return
        for copied, master in zip(self.lm.model.parameters(), self.model.parameters(), strict=True):
            copied.copy_(master)

    def save(self, folder: Path) -> None:
        """Write the model or its adapter as transformers and peft load it."""
        model: Any = self.model
        if self._is_lora:
            save_adapter(model, folder)
        else:
            model.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote, but not the copy. Raises CheckpointError."""
        load_weights(self.model, folder, is_lora=self._is_lora)


def merge_for_speed(model: Any) -> nn.Module | None:
    """A copy of a LoRA model with merged matrices, if the layers written out can compute it."""
    merged = merge_adapter(model)
    return merged if merged is not None and can_be_fast(merged) else None


def _copy_in_bfloat16(model: nn.Module) -> nn.Module:
    """A copy with bfloat16 weights. Buffers, such as rotary frequencies, keep their precision."""
    copied = copy.deepcopy(model)
    for parameter in copied.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return copied
