"""A policy's machine on torch: one causal language model, fully trained or with a LoRA adapter.

Trained weights are float32. With precision bf16 or fp16 a fully trained model plays, scores and
learns through one copy of it, which every update refreshes. Under LoRA the frozen base was loaded
in that precision already. On the CPU it computes through sums of base and adapter where it can,
elsewhere through peft.

With fp16 the loss is scaled, or small gradients would become 0. Where a gradient is too large for
it, the scale is halved and the update begins again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from wordle_rl.backends.saving import save_model, save_tokenizer
from wordle_rl.backends.sizes import is_known
from wordle_rl.backends.torch.causal_lm import CausalLM, ValueHead
from wordle_rl.backends.torch.devices import DTYPES
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.backends.torch.fast.merged_lora import merge_adapter, refresh_sums
from wordle_rl.backends.torch.load import load_weights, save_adapter
from wordle_rl.backends.torch.optimizers import (
    build_adamw,
    build_optimizers,
    load_states,
    save_states,
)
from wordle_rl.backends.torch.plain import PlainLM, PlainRows
from wordle_rl.backends.torch.static import StaticRows
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.prefix_cache import CachedModel
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.files import read_object, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.processes import Processes
from wordle_rl.runs.timing import Timers

_OPTIMIZER, _SCALE = "optimizer.safetensors", "loss_scale.json"


class TorchMachine:
    """A wordle_rl.policy.policy.Machine on one device per process."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: HFTokenizer,
        *,
        optim: Optim,
        precision: Precision = "fp32",
        gradient_checkpointing: bool = False,
        cuda_graphs: bool = False,
    ) -> None:
        """model: of transformers or peft, on its device. Parameters with requires_grad are trained.

        cuda_graphs: whether games are played through StaticRows, see static.py.
        Raises ConfigError for a model that cannot play or learn here.
        """
        model.eval()  # dropout stays off: scores must not depend on chance
        self.model, self.tokenizer = model, tokenizer
        self.precision: Precision = precision
        self.timers, self.scale_fell, self._optim = Timers(), False, optim
        self.trainable = [p for p in model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(model, optim, precision)
        # Lightning's module puts its own in their place, so that callbacks see them.
        self.backward: Callable[[torch.Tensor], None] = torch.Tensor.backward
        self.apply_gradients: list[Callable[[], Any]] = [o.step for o in self.optimizers]
        self._is_lora = hasattr(model, "peft_config")
        self._has_copy = not self._is_lora and next(model.parameters()).dtype != DTYPES[precision]
        known: Any = is_known(model.config)
        on_cpu = next(model.parameters()).device.type == "cpu"
        self._merged_model = merge_adapter(model) if self._is_lora and on_cpu and known else None
        network = _copy_model(model, precision) if self._has_copy else self._merged_model or model
        kind = CausalLM if known else PlainLM
        if cuda_graphs and not known:
            raise ConfigError(
                "backend.cuda_graphs must be false for this model: it is played by transformers' "
                "own cache"
            )
        self.lm = kind(network, checkpointing=gradient_checkpointing)
        self._static_rows = StaticRows(self.lm) if cuda_graphs else None
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=precision == "fp16")
        self._scaler.scale(torch.zeros(1, device=self.device))  # prepares it in every process

    @property
    def device(self) -> torch.device:
        return self.lm.device

    @property
    def device_bytes(self) -> int:
        """Memory that torch holds on the accelerator, in use or not; 0 on the CPU."""
        if self.device.type == "cuda":
            return torch.cuda.memory_reserved(self.device)
        return torch.mps.driver_allocated_memory() if self.device.type == "mps" else 0

    @property
    def num_parameters(self) -> tuple[int, int]:
        """Trainable and all parameters. A byte of a quantised base holds two."""

        def count(parameters: Iterable[nn.Parameter]) -> int:
            return sum(p.numel() * (2 if p.dtype == torch.uint8 else 1) for p in parameters)

        return count(self.trainable), count(self.model.parameters())

    @property
    def is_finite(self) -> bool:
        copies = (replica for replica, _ in self._copies_and_masters())  # fp16 holds less than fp32
        return all(bool(weight.isfinite().all()) for weight in (*self.trainable, *copies))

    def make_rows(self) -> CachedModel:
        if isinstance(self.lm, PlainLM):
            return PlainRows(self.lm)
        # One engine plays at a time, and a new one begins with empty rows.
        return self._static_rows or TorchRows(self.lm)

    def keep(self) -> Callable[[], AbstractContextManager[None]]:
        backup = [weight.detach().clone() for weight in self._changing_weights()]

        def exchange() -> None:
            """Let the kept weights take the place of the others, or give it back."""
            for index, weight in enumerate(self._changing_weights()):
                weight.data, backup[index] = backup[index], weight.data
            if self._merged_model is not None:
                refresh_sums(self._merged_model)

        @contextmanager
        def use() -> Iterator[None]:
            exchange()
            try:
                yield
            finally:
                exchange()

        return use

    def _changing_weights(self) -> list[nn.Parameter]:
        """The weights that updates change, in the form that the model computes with."""
        if self._has_copy:
            return list(self.lm.model.parameters())
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def rehearsal(self) -> Self | None:
        if self.device.type != "cpu" or self._scaler.is_enabled():  # a GPU waits for much else
            return None
        machine = copy.copy(self)
        machine.apply_gradients = []
        return machine

    def add_value_head(self) -> None:
        self.lm.value_head = ValueHead(self.lm.config.hidden_size).to(self.device)
        parameters = list(self.lm.value_head.parameters())
        self.trainable += parameters
        self.optimizers.append(build_adamw(parameters, self._optim, weight_decay=0.0))
        self.apply_gradients.append(self.optimizers[-1].step)

    def add_gradient(self, loss: Callable[[], tuple[Any, dict[str, Any]]]) -> dict[str, float]:
        with self.timers("forward"):
            total, parts = loss()
        with self.timers("backward"):
            self.backward(self._scaler.scale(total))
            if self._has_copy:
                self._move_gradients()
        return {name: value.item() for name, value in parts.items()}

    def _move_gradients(self) -> None:
        """Add the gradients of the copy to those of the weights it was copied from."""
        for replica, master in self._copies_and_masters():
            if replica.grad is not None:
                gradient = replica.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                replica.grad = None

    def share_gradients(self, processes: Processes) -> None:
        flags = processes.gather([parameter.grad is not None for parameter in self.trainable])
        needs = map(any, zip(*flags, strict=True))
        for parameter, needed in zip(self.trainable, needs, strict=True):
            if needed and parameter.grad is None:  # nothing to train in this process
                parameter.grad = torch.zeros_like(parameter)
        processes.add_up([p.grad for p in self.trainable if p.grad is not None])

    def step(self, *, apply: bool) -> float:
        norm = self._clip_gradients()
        if apply and math.isfinite(norm):
            self._take_step()
        self.drop_gradients()
        return norm

    def _clip_gradients(self) -> float:
        if self._scaler.is_enabled():
            scale = self._scaler.get_scale()
            for optimizer in self.optimizers:
                self._scaler.unscale_(optimizer)
            self._scaler.update()
            self.scale_fell = self._scaler.get_scale() < scale and scale > 1.0
        limit = self._optim.clip_grad_norm or float("inf")
        return float(torch.nn.utils.clip_grad_norm_(self.trainable, limit))

    def _take_step(self) -> None:
        for apply in self.apply_gradients:
            apply()
        self.refresh_copy()

    def drop_gradients(self) -> None:
        for parameter in self.trainable:
            parameter.grad = None
        for replica, _ in self._copies_and_masters():
            replica.grad = None

    def copy_gradients(self) -> list[torch.Tensor | None]:
        return [None if p.grad is None else p.grad.clone() for p in self.trainable]

    def multiply_gradients(self, first: Any, processes: Processes) -> tuple[float, float, float]:
        pairs = [
            (p.grad, torch.zeros_like(p.grad) if part is None else part)
            for p, part in zip(self.trainable, first, strict=True)
            if p.grad is not None
        ]
        if processes.size > 1:
            processes.add_up([part for _, part in pairs])
        sums = torch.zeros(3, dtype=torch.float64)
        for total, part in pairs:
            total, part = total.flatten().double(), part.flatten().double()
            sums += torch.stack([total @ total, total @ part, part @ part]).cpu()
        total, product, square = sums.tolist()
        return total, product, square

    def _copies_and_masters(self) -> Iterable[tuple[nn.Parameter, nn.Parameter]]:
        """Each parameter of the copy, if there is one, with the one it was copied from."""
        if not self._has_copy:
            return ()
        return zip(self.lm.model.parameters(), self.model.parameters(), strict=True)

    @torch.no_grad()
    def refresh_copy(self) -> None:
        """Let the weights that compute follow the trained ones, after those changed."""
        if self._merged_model is not None:
            refresh_sums(self._merged_model)
        for replica, master in self._copies_and_masters():
            replica.copy_(master)

    def set_learning_rate(self, lr: float) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["share"]

    def export(self, folder: Path) -> None:
        """Write the model (or LoRA adapter) and tokenizer as transformers and peft load them.

        A value head is written beside them, in value_head.safetensors.
        """
        model: Any = self.model
        if self._is_lora:
            save_adapter(model, folder)
        else:
            save_model(model, folder, self.tokenizer.stop_ids)
        save_tokenizer(self.tokenizer.inner, folder)
        if self.lm.value_head is not None:
            self.lm.value_head.save(folder)

    def save(self, folder: Path) -> None:
        """Write export() and the optimisers' states."""
        self.export(folder / "model")
        save_states(self.optimizers, folder / _OPTIMIZER)
        if self._scaler.is_enabled():
            write_json(folder / _SCALE, self._scaler.state_dict())

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. Raises CheckpointError if that was another model's."""
        load_weights(self.model, folder / "model", is_lora=self._is_lora)
        if self.lm.value_head is not None:
            self.lm.value_head.load(folder / "model")
        load_states(self.optimizers, folder / _OPTIMIZER)
        if self._scaler.is_enabled() and (folder / _SCALE).is_file():
            self._scaler.load_state_dict(dict(read_object(folder / _SCALE)))
        self.refresh_copy()


def _copy_model(model: nn.Module, precision: Precision) -> nn.Module:
    """A copy with weights in a precision. Buffers, such as rotary frequencies, keep theirs."""
    replica = copy.deepcopy(model)
    for parameter in replica.parameters():
        parameter.data = parameter.data.to(DTYPES[precision])
    return replica
