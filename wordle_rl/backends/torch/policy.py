"""The policy on torch: rollouts, scores and updates of one causal language model.

Full fine-tuning or LoRA. Trained weights are kept in float32. With precision bf16 a fully trained
model plays, scores and learns through one bfloat16 copy, which every update refreshes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.backends.engine import CachedEngine
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.torch.engine import build_engine
from wordle_rl.backends.torch.loss import compute_loss
from wordle_rl.backends.torch.micro_batches import MicroBatches
from wordle_rl.backends.torch.optimizers import (
    build_adamw,
    build_optimizers,
    load_states,
    set_learning_rate,
)
from wordle_rl.backends.torch.token_outputs import compute_token_outputs
from wordle_rl.backends.torch.trained_model import TrainedModel
from wordle_rl.backends.torch.value_head import ValueHead
from wordle_rl.policy.batch import Batch, FloatArray
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.update_metrics import UpdateMetrics, merge_metrics
from wordle_rl.runs.processes import ALONE, Processes
from wordle_rl.runs.timing import Timers


class TorchPolicy:
    """Implements wordle_rl.policy.policy.Policy on one device per process.

    model: a transformers or peft model on its device. Only parameters with requires_grad are
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
        gradient_checkpointing: bool = False,
    ) -> None:
        if precision not in ("fp32", "bf16"):
            raise ValueError(f"backend.precision must be fp32 or bf16, not {precision!r}")
        self.model = model
        self.tokenizer = tokenizer
        self.timers = Timers()
        self.processes: Processes = ALONE  # replaced when more processes start
        self.computing = Computing(precision=precision)  # replaced by the timed choice
        self.optim = optim
        self.trainable = [p for p in model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(model, optim, precision)
        # Lightning replaces these two with its own.
        self.backward: Callable[[torch.Tensor], None] = torch.Tensor.backward
        self.apply_gradients: list[Callable[[], Any]] = [o.step for o in self.optimizers]
        self._temperature = temperature
        self._max_context = max_context
        self._trained = TrainedModel(model, precision, checkpointing=gradient_checkpointing)
        self._micro_batches = MicroBatches(
            micro_batch_tokens, by_prompt=self._trained.lm.shares_openings
        )
        self._value_head: ValueHead | None = None
        self._value_optimizer: torch.optim.Optimizer | None = None  # the last of optimizers

    @property
    def device(self) -> torch.device:
        return self._trained.lm.device

    @property
    def device_bytes(self) -> int:
        """Memory that torch holds on the accelerator, in use or not; 0 on the CPU."""
        return measure_device_memory(self.device)

    @property
    def num_parameters(self) -> tuple[int, int]:
        """Trainable and all parameters."""
        return count_weights(self.trainable), count_weights(self.model.parameters())

    def engine(self) -> CachedEngine:
        """A fresh engine on the current weights."""
        return build_engine(
            self._trained.lm,
            stop_ids=self.tokenizer.stop_ids,
            max_context=self._max_context,
            timers=self.timers,
        )

    def keep_reference(self) -> None:
        """Make the current weights the reference."""
        self._trained.keep_reference()

    def add_value_head(self) -> None:
        """Add a linear head that learns values from the trunk's hidden states."""
        self._value_head = ValueHead(self._trained.lm.config.hidden_size).to(self.device)
        self._value_optimizer = build_adamw(self._value_head.parameters(), self.optim, 0.0)
        self.trainable += self._value_head.parameters()
        self.optimizers.append(self._value_optimizer)
        self.apply_gradients.append(self._value_optimizer.step)

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """Log-probabilities [N, T] of the trained tokens as the trainer sees them, else 0."""
        with self.timers("reference" if reference else "score"):
            return self._read(batch, reference=reference)

    def values(self, batch: Batch) -> FloatArray:
        """What the value head says [N, T] before each trained token is drawn, else 0."""
        head = self._need_value_head()
        with self.timers("values"):
            return self._read(batch, head)

    @torch.inference_mode()
    def _read(
        self, batch: Batch, value_head: ValueHead | None = None, *, reference: bool = False
    ) -> FloatArray:
        """What the value head says [N, T], or without one the log-probabilities."""
        trained, temperature = self._trained, self._temperature
        out = np.zeros(batch.ids.shape, np.float32)

        def read(rows: np.ndarray) -> None:
            with trained.use_reference() if reference else nullcontext(trained.lm) as lm:
                outputs = compute_token_outputs(
                    lm, batch, rows, temperature=temperature, value_head=value_head
                )
            found = outputs.logprobs if outputs.values is None else outputs.values
            out[rows, : found.shape[1]] = found.float().cpu().numpy()

        self._micro_batches.run(batch, read)
        return out

    def _need_value_head(self) -> ValueHead:
        if self._value_head is None:
            raise RuntimeError("add_value_head() was not called before values were asked for")
        return self._value_head

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, in micro-batches.

        Returns metrics. `update/skipped` is 1 when a loss or gradient was not finite and the
        weights stayed as they were. `update/halved` counts how often micro-batches were halved
        since the last update, because memory ran out. Raises DoesNotFit.
        """
        metrics = UpdateMetrics(tokens=float(batch.trained.sum()))

        def begin() -> None:
            metrics.reset()
            self._drop_gradients()

        def learn(rows: np.ndarray) -> None:
            with self.timers("forward"):
                loss, parts = self._compute_loss(batch, rows, algorithm)
            with self.timers("backward"):
                self.backward(loss)
                self._trained.gather_gradients()
            metrics.add(loss.item(), parts)

        self._micro_batches.run(batch, learn, begin)
        metrics.halved = self._micro_batches.take_halved()
        if self.processes.size > 1:
            with self.timers("processes"):
                metrics = add_up_processes(self.processes, self.trainable, metrics)
        with self.timers("optimizer"):
            norm, skipped = self._step(metrics.loss)
        return metrics.to_dict(grad_norm=norm, skipped=skipped)

    def _compute_loss(
        self, batch: Batch, rows: np.ndarray, algorithm: Algorithm
    ) -> tuple[torch.Tensor, dict[str, float]]:
        outputs = compute_token_outputs(
            self._trained.lm, batch, rows,
            temperature=self._temperature,
            entropy=algorithm.needs_entropy,
            value_head=self._need_value_head() if algorithm.needs_values else None,
        )  # fmt: skip
        return compute_loss(algorithm, outputs, batch, rows)

    def _step(self, loss: float) -> tuple[float, bool]:
        limit = self.optim.clip_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(self.trainable, limit or float("inf")))
        skipped = not (np.isfinite(norm) and np.isfinite(loss))
        if not skipped:
            for apply in self.apply_gradients:
                apply()
            self._trained.refresh_copy()
        self._drop_gradients()
        return norm, skipped

    def _drop_gradients(self) -> None:
        for parameter in self.trainable:
            parameter.grad = None
        self._trained.drop_copied_gradients()

    def set_learning_rate(self, lr: float) -> None:
        set_learning_rate(self.optimizers, self.optim, lr)
        if self._value_optimizer is not None:  # a new head always learns at the full rate
            for group in self._value_optimizer.param_groups:
                group["lr"] = lr

    def export(self, folder: Path) -> None:
        """Write the model (or LoRA adapter) and tokenizer as transformers and peft load them.

        A value head is written beside them, in value_head.safetensors.
        """
        self._trained.save(folder)
        self.tokenizer.inner.save_pretrained(folder)
        if self._value_head is not None:
            self._value_head.save(folder)

    def save(self, folder: Path) -> None:
        """Write everything a resumed run needs: export() and the optimisers' states."""
        self.export(folder / "model")
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        # Python opens the file, because torch's own errors do not say why a write failed.
        with open(folder / "optimizer.pt", "wb") as file:
            torch.save(states, file)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. The reference does not change.

        Raises CheckpointError when another model wrote it, or it cannot be read.
        """
        self._trained.load(folder / "model")
        if self._value_head is not None:
            self._value_head.load(folder / "model")
        load_states(self.optimizers, folder / "optimizer.pt")
        self._trained.refresh_copy()


def count_weights(parameters: Iterable[nn.Parameter]) -> int:
    """How many weights the parameters hold. A byte of a quantised base holds two."""
    return sum(p.numel() * (2 if p.dtype == torch.uint8 else 1) for p in parameters)


def measure_device_memory(device: torch.device) -> int:
    """Bytes that torch holds on an accelerator, in use or not; 0 on the CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    return torch.mps.driver_allocated_memory() if device.type == "mps" else 0


def add_up_processes(
    processes: Processes, trainable: Sequence[nn.Parameter], metrics: UpdateMetrics
) -> UpdateMetrics:
    """Sum the gradients over all processes, and return the metrics of them all."""
    has_gradient = [parameter.grad is not None for parameter in trainable]
    gathered = processes.gather((metrics, has_gradient))
    parts, have = zip(*gathered, strict=True)
    for parameter, anywhere in zip(trainable, map(any, zip(*have, strict=True)), strict=True):
        if anywhere and parameter.grad is None:  # nothing to train in this process
            parameter.grad = torch.zeros_like(parameter)
    processes.add_up([parameter.grad for parameter in trainable if parameter.grad is not None])
    return merge_metrics(parts)
