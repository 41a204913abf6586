"""The policy on torch: rollouts, scores and updates of one causal language model.

Full fine-tuning or LoRA. Weights that are trained are kept in float32. With precision bf16 a
fully trained model plays, scores and learns through one bfloat16 copy, refreshed per update.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from wordle_rl.algorithms.base import Algorithm, LossInputs
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchEngine
from wordle_rl.backends.torch.optimizers import build_optimizers, load_states, set_learning_rate
from wordle_rl.backends.torch.token_outputs import token_outputs
from wordle_rl.backends.torch.value_head import ValueHead
from wordle_rl.backends.torch.weights import load_weights
from wordle_rl.policy.batch import Batch, FloatArray, micro_batches
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import LARGEST
from wordle_rl.runs.processes import ALONE, Processes
from wordle_rl.runs.timing import Timers


class TorchPolicy:
    """Implements wordle_rl.policy.policy.Policy on one device per process.

    model: transformers model or peft model on its device; only parameters with requires_grad are
    trained. micro_batch_tokens: padded tokens per forward and backward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: HFTokenizer,
        *,
        temperature: float,
        optim: Optim,
        precision: Precision = "fp32",
        micro_batch_tokens: int = 16_384,
        max_context: int = 1024,
    ) -> None:
        if precision not in ("fp32", "bf16"):
            raise ValueError(f"backend.precision must be fp32 or bf16, not {precision!r}")
        if micro_batch_tokens < 1:
            raise ValueError(f"backend.micro_batch_tokens must be 1 or more: {micro_batch_tokens}")
        self.model = model
        self.tokenizer = tokenizer
        self.timers = Timers()
        self.processes: Processes = ALONE  # until others are started beside this one
        self.computing = Computing(precision=precision)  # replaced by what was timed
        self.optim = optim
        self.trainable = [p for p in model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(model, optim, precision)
        # Lightning puts its own in the place of these two.
        self.backward: Callable[[torch.Tensor], None] = torch.Tensor.backward
        self.apply_gradients: list[Callable[[], Any]] = [o.step for o in self.optimizers]
        self._temperature = temperature
        self._micro_batch_tokens = micro_batch_tokens
        self._max_context = max_context
        # LoRA's frozen base is loaded in bf16 already; a fully trained model computes on a copy.
        self._is_lora = hasattr(model, "peft_config")
        self._copies = precision == "bf16" and not self._is_lora
        model.eval()  # dropout stays off: scores must not depend on chance
        self._lm = CausalLM(_bfloat16_copy(model) if self._copies else model)
        self._reference: CausalLM | None = None
        self._value_head: ValueHead | None = None
        self._value_optimizer: torch.optim.Optimizer | None = None  # the last of optimizers

    @property
    def device(self) -> torch.device:
        return self._lm.device

    @property
    def device_bytes(self) -> int:
        """Memory that torch holds on the accelerator, in use or not; 0 on the CPU."""
        if self.device.type == "cuda":
            return torch.cuda.memory_reserved(self.device)
        return torch.mps.driver_allocated_memory() if self.device.type == "mps" else 0

    @property
    def num_parameters(self) -> tuple[int, int]:
        """Trainable and all parameters."""
        return sum(p.numel() for p in self.trainable), sum(
            p.numel() for p in self.model.parameters()
        )

    def engine(self) -> TorchEngine:
        """A fresh engine on the present weights."""
        return TorchEngine(
            self._lm,
            stop_ids=self.tokenizer.stop_ids,
            max_context=self._max_context,
            timers=self.timers,
        )

    def keep_reference(self) -> None:
        """Make the present weights the reference."""
        if self._is_lora:
            model: Any = self.model
            if "reference" not in model.peft_config:
                model.add_adapter("reference", model.peft_config["default"])
                model.eval()  # the new adapter brings dropout of its own, switched on
            state = model.state_dict()
            with torch.no_grad():
                for name, tensor in state.items():
                    if ".reference." in name:
                        tensor.copy_(state[name.replace(".reference.", ".default.")])
            model.set_adapter("default")
            for name, parameter in model.named_parameters():
                if ".reference." in name:
                    parameter.requires_grad_(False)
            self._reference = self._lm
        else:
            frozen = copy.deepcopy(self._lm.model).requires_grad_(False)
            self._reference = CausalLM(frozen)

    def add_value_head(self) -> None:
        """Let a linear head on the trunk's hidden states learn values from now on."""
        self._value_head = ValueHead(self._lm.config.hidden_size).to(self.device)
        parameters = list(self._value_head.parameters())
        optim = self.optim
        self._value_optimizer = torch.optim.AdamW(
            parameters, lr=optim.lr, betas=(optim.beta1, optim.beta2), weight_decay=0.0
        )
        self.trainable += parameters
        self.optimizers.append(self._value_optimizer)
        self.apply_gradients.append(self._value_optimizer.step)

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """Log-probabilities [N, T] of the trained tokens as the trainer sees them, else 0."""
        out = np.zeros(batch.ids.shape, np.float32)
        with self.timers("reference" if reference else "score"), torch.inference_mode():
            for rows in micro_batches(batch, self._micro_batch_tokens):
                with self._reference_model() if reference else _as_is(self._lm) as lm:
                    scored = token_outputs(lm, batch, rows, temperature=self._temperature).logprobs
                out[rows, : scored.shape[1]] = scored.float().cpu().numpy()
        return out

    def values(self, batch: Batch) -> FloatArray:
        """Of the value head [N, T] before each trained token was drawn, else 0."""
        out = np.zeros(batch.ids.shape, np.float32)
        head = self._trained_value_head()
        with self.timers("values"), torch.inference_mode():
            for rows in micro_batches(batch, self._micro_batch_tokens):
                values = token_outputs(
                    self._lm, batch, rows, temperature=self._temperature, value_head=head
                ).values
                assert values is not None
                out[rows, : values.shape[1]] = values.cpu().numpy()
        return out

    def _trained_value_head(self) -> ValueHead:
        if self._value_head is None:
            raise RuntimeError("add_value_head() was not called before values were asked for")
        return self._value_head

    @contextlib.contextmanager
    def _reference_model(self) -> Iterator[CausalLM]:
        if self._reference is None:
            raise RuntimeError("keep_reference() was not called before a reference score")
        if not self._is_lora:
            yield self._reference
            return
        model: Any = self.model
        model.set_adapter("reference", inference_mode=True)
        try:
            yield self._reference
        finally:
            model.set_adapter("default")

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, micro-batched inside.

        Returns metrics; `update/skipped` is 1 when a loss or gradient was not finite and the
        weights were left as they were.
        """
        total = 0.0
        sums: dict[str, float] = {}
        largest: dict[str, float] = dict.fromkeys(LARGEST, 0.0)
        for rows in micro_batches(batch, self._micro_batch_tokens):
            with self.timers("forward"):
                loss, parts = self._loss(batch, rows, algorithm)
            with self.timers("backward"):
                self.backward(loss)
                self._gather_gradients()
            total += loss.item()
            largest = {name: max(most, parts.pop(name)) for name, most in largest.items()}
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + value
        sums["tokens"] = float(batch.trained.sum())
        if self.processes.size > 1:
            with self.timers("processes"):
                total, sums, largest = self._over_processes(total, sums, largest)
        with self.timers("optimizer"):
            norm, skipped = self._step(total)
        tokens = max(sums.pop("tokens"), 1.0)
        metrics = {f"policy/{name}": value / tokens for name, value in sums.items()}
        metrics |= {f"policy/{name}": value for name, value in largest.items()}
        return metrics | {"loss": total, "grad_norm": norm, "update/skipped": float(skipped)}

    def _over_processes(
        self, total: float, sums: dict[str, float], largest: dict[str, float]
    ) -> tuple[float, dict[str, float], dict[str, float]]:
        """Add up gradients, losses and sums, alike in every process; of the rest the largest."""
        has_gradient = [p.grad is not None for p in self.trainable]
        parts = self.processes.gather((total, sums, largest, has_gradient))
        totals, all_sums, every, have = zip(*parts, strict=True)
        for parameter, anywhere in zip(
            self.trainable, map(any, zip(*have, strict=True)), strict=True
        ):
            if anywhere and parameter.grad is None:  # nothing to train in this process
                parameter.grad = torch.zeros_like(parameter)
        self.processes.add_up([p.grad for p in self.trainable if p.grad is not None])
        names = dict.fromkeys(name for own in all_sums for name in own)
        added = {name: sum((own.get(name, 0.0) for own in all_sums), 0.0) for name in names}
        most = {name: max(own[name] for own in every) for name in largest}
        return sum(totals, 0.0), added, most

    def _loss(
        self, batch: Batch, rows: np.ndarray, algorithm: Algorithm
    ) -> tuple[torch.Tensor, dict[str, float]]:
        outputs = token_outputs(
            self._lm, batch, rows,
            temperature=self._temperature,
            entropy=algorithm.needs_entropy,
            value_head=self._trained_value_head() if algorithm.needs_values else None,
        )  # fmt: skip
        logprobs = outputs.logprobs
        width = logprobs.shape[1]

        def tensor(values: FloatArray) -> torch.Tensor:
            return torch.from_numpy(values[rows, :width]).to(logprobs.device, torch.float32)

        def given(values: FloatArray | None) -> torch.Tensor | None:
            return None if values is None else tensor(values)

        old = logprobs.detach() if batch.old_logprobs is None else tensor(batch.old_logprobs)
        trained = torch.from_numpy(batch.trained[rows, :width]).to(logprobs.device)
        units = np.arange(len(batch.lengths)) if batch.units is None else batch.units
        terms = LossInputs(
            logprobs=logprobs,
            old_logprobs=old,
            sampler_logprobs=tensor(batch.sampler_logprobs),
            advantages=tensor(batch.advantages),
            trained=trained,
            units=torch.from_numpy(units[rows]).to(logprobs.device),
            ref_logprobs=given(batch.ref_logprobs),
            entropy=outputs.entropy,
            values=outputs.values,
            old_values=given(batch.old_values),
            targets=given(batch.targets),
            target_scale=batch.target_scale,
        )
        per_token, extra = algorithm.loss(torch, terms)
        loss = (per_token * tensor(batch.weights)).sum()
        drift = (logprobs.detach() - terms.sampler_logprobs).abs()
        extra |= {"sampler_gap": drift, "surprise": -logprobs}
        parts = {k: (v.detach().float() * trained).sum().item() for k, v in extra.items()}
        parts["ratio_gap"] = ((logprobs.detach() - old).exp() - 1).abs().max().item()
        parts["largest_sampler_gap"] = drift.max().item()
        return loss, parts

    def _step(self, loss: float) -> tuple[float, bool]:
        limit = self.optim.clip_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(self.trainable, limit or float("inf")))
        skipped = not (np.isfinite(norm) and np.isfinite(loss))
        if not skipped:
            for apply in self.apply_gradients:
                apply()
            self._refresh_copy()
        for parameter in self.trainable:
            parameter.grad = None
        return norm, skipped

    def _gather_gradients(self) -> None:
        """Add the copy's gradients to those of the float32 weights."""
        if not self._copies:
            return
        for copied, master in zip(
            self._lm.model.parameters(), self.model.parameters(), strict=True
        ):
            if copied.grad is not None:
                gradient = copied.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                copied.grad = None

    def _refresh_copy(self) -> None:
        if not self._copies:
            return
        with torch.no_grad():
            for copied, master in zip(
                self._lm.model.parameters(), self.model.parameters(), strict=True
            ):
                copied.copy_(master)

    def set_learning_rate(self, lr: float) -> None:
        set_learning_rate(self.optimizers, self.optim, lr)
        if self._value_optimizer is not None:  # starts from nothing: no share of lr, but all of it
            for group in self._value_optimizer.param_groups:
                group["lr"] = lr

    def export(self, folder: Path) -> None:
        """Write the model (or LoRA adapter) and tokenizer as transformers and peft load them.

        A value head lies beside them, in value_head.safetensors.
        """
        model: Any = self.model
        if self._is_lora:
            model.save_pretrained(folder, selected_adapters=["default"])
        else:
            model.save_pretrained(folder)
        self.tokenizer.inner.save_pretrained(folder)
        if self._value_head is not None:
            self._value_head.save(folder)

    def save(self, folder: Path) -> None:
        """Write everything a resumed run needs: export() and the optimisers' states."""
        self.export(folder / "model")
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        # through a file of Python's, whose errors say why they came
        with open(folder / "optimizer.pt", "wb") as file:
            torch.save(states, file)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. The reference is left as it is.

        Raises CheckpointError when another model wrote it, or it cannot be read.
        """
        load_weights(self.model, folder / "model", is_lora=self._is_lora)
        if self._value_head is not None:
            self._value_head.load(folder / "model")
        load_states(self.optimizers, folder / "optimizer.pt")
        self._refresh_copy()


def _bfloat16_copy(model: nn.Module) -> nn.Module:
    """A copy with bfloat16 weights; buffers, such as rotary frequencies, stay exact."""
    copied = copy.deepcopy(model)
    for parameter in copied.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return copied


@contextlib.contextmanager
def _as_is(lm: CausalLM) -> Iterator[CausalLM]:
    yield lm
