"""The policy on MLX: rollouts, scores and updates of one language model.

Full fine-tuning or LoRA. Trained weights are kept in float32. With precision bf16 a fully trained
model plays, scores and learns through bfloat16 copies of them. MLX arrays never change, so keeping
a set of weights as the reference costs nothing until an update creates new ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.backends.engine import CachedEngine
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.mlx.causal_lm import MlxLM, count_parameters
from wordle_rl.backends.mlx.engine import build_engine
from wordle_rl.backends.mlx.load import LoadedModel
from wordle_rl.backends.mlx.loss import Arrays, MicroBatch, compute_loss
from wordle_rl.backends.mlx.optimizers import Optimizers, clip_gradients
from wordle_rl.backends.mlx.save import (
    VALUE_HEAD_PREFIX,
    Weights,
    load_weights,
    save_model_or_adapter,
)
from wordle_rl.policy.batch import Batch, FloatArray, split_micro_batches
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import LM_HEAD
from wordle_rl.policy.update_metrics import UpdateMetrics
from wordle_rl.runs.processes import ALONE, Processes
from wordle_rl.runs.timing import Timers

_OPTIMIZER = "optimizer.safetensors"


class MlxPolicy:
    """Implements wordle_rl.policy.policy.Policy on one device.

    micro_batch_tokens: padded tokens per forward and backward pass.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        temperature: float,
        optim: Optim,
        precision: Precision = "fp32",
        micro_batch_tokens: int = 16_384,
        max_context: int = 1024,
        gradient_checkpointing: bool = False,
    ) -> None:
        self.loaded = loaded
        self.tokenizer: HFTokenizer = loaded.tokenizer
        self.timers = Timers()
        self.processes: Processes = ALONE
        self.computing = Computing(precision=precision)  # replaced by the timed choice
        self.optim = optim
        loaded.model.eval()  # dropout stays off: scores must not depend on chance
        self.weights: Weights = dict(tree_flatten(loaded.model.trainable_parameters()))
        self.optimizers = self._build_optimizers()
        self._temperature = temperature
        self._micro_batch_tokens = micro_batch_tokens
        self._is_lora = loaded.adapter is not None
        self._has_copy = precision == "bf16" and not self._is_lora
        self.lm = MlxLM(loaded.model)
        if gradient_checkpointing:
            self.lm.checkpoint_layers()
        self._max_context = max_context
        self._reference: Weights | None = None
        self._refresh_copy()

    def _build_optimizers(self) -> Optimizers:
        tables = {n for n in self.weights if "embed_tokens" in n or LM_HEAD in n}
        head = {n for n in self.weights if n.startswith(VALUE_HEAD_PREFIX)}
        return Optimizers(self.weights, tables, self.optim, head, self.computing.precision)

    @property
    def device_bytes(self) -> int:
        """Memory of the arrays on the GPU, or 0 on the CPU."""
        on_cpu = mx.default_device() == mx.Device(mx.cpu)
        return 0 if on_cpu else mx.get_active_memory()

    @property
    def num_parameters(self) -> tuple[int, int]:
        """Trainable and all parameters. Quantised weights count as the weights they represent."""
        trainable = sum(weight.size for weight in self.weights.values())
        return trainable, count_parameters(self.lm.model)

    def engine(self) -> CachedEngine:
        """A fresh engine on the current weights."""
        return build_engine(
            self.lm, self._weights_in_use, stop_ids=self.tokenizer.stop_ids,
            max_context=self._max_context, timers=self.timers,
        )  # fmt: skip

    def keep_reference(self) -> None:
        """Make the current weights the reference."""
        self._reference = dict(self._weights_in_use)

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """Log-probabilities [N, T] of the trained tokens as the trainer sees them, else 0."""
        weights = self._reference if reference else self._weights_in_use
        if weights is None:
            raise RuntimeError("keep_reference() was not called before a reference score")
        with self.timers("reference" if reference else "score"):
            return self._compute_output("logprobs", weights, batch)

    def add_value_head(self) -> None:
        """Add a linear head that learns values from the trunk's hidden states."""
        self.weights = self.weights | self.lm.add_value_head()
        self.optimizers = self._build_optimizers()
        self._refresh_copy()

    def values(self, batch: Batch) -> FloatArray:
        """What the value head says [N, T] before each trained token is drawn, else 0."""
        if not any(name.startswith(VALUE_HEAD_PREFIX) for name in self.weights):
            raise RuntimeError("add_value_head() was not called before values were asked for")
        with self.timers("values"):
            return self._compute_output("values", self._weights_in_use, batch)

    def _compute_output(self, name: str, weights: Weights, batch: Batch) -> FloatArray:
        """One of the TokenOutputs at the trained tokens of a batch [N, T], else 0."""

        def compute(arrays: Arrays) -> mx.array:
            with self.lm.use_weights(weights):
                outputs = self.lm.compute_token_outputs(
                    arrays, self._temperature, values=name == "values"
                )
            return getattr(outputs, name)

        out = np.zeros(batch.ids.shape, np.float32)
        for rows in split_micro_batches(batch, self._micro_batch_tokens):
            part = MicroBatch(batch, rows)
            found = part.place(np.array(compute(part.scored)))
            out[rows, : found.shape[1]] = found
        return out

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, in micro-batches.

        Returns metrics. `update/skipped` is 1 when a loss or gradient was not finite and the
        weights stayed as they were.
        """
        metrics = UpdateMetrics(tokens=float(batch.trained.sum()))
        gradients = {name: mx.zeros_like(weight) for name, weight in self.weights.items()}
        for rows in split_micro_batches(batch, self._micro_batch_tokens):
            with self.timers("update"):
                part = MicroBatch(batch, rows)
                loss, parts, new = self._compute_gradient(part, algorithm)
                gradients = {name: gradients[name] + new[name] for name in gradients}
                mx.eval(loss, parts, gradients)
            metrics.add(loss.item(), {name: value.item() for name, value in parts.items()})
        with self.timers("optimizer"):
            norm, skipped = self._step(gradients, metrics.loss)
        return metrics.to_dict(grad_norm=norm, skipped=skipped)

    def _compute_gradient(self, part: MicroBatch, algorithm: Algorithm) -> Any:
        """Loss, metrics, and the gradient by name."""

        def compute(weights: Weights) -> Any:
            with self.lm.use_weights(self._copy(weights)):
                outputs = self.lm.compute_token_outputs(
                    part.arrays, self._temperature,
                    entropy=algorithm.needs_entropy, values=algorithm.needs_values,
                )  # fmt: skip
            return compute_loss(algorithm, outputs, part.arrays)

        (loss, parts), gradients = mx.value_and_grad(compute)(self.weights)
        return loss, parts, gradients

    def _step(self, gradients: Weights, loss: float) -> tuple[float, bool]:
        gradients, norm = clip_gradients(gradients, self.optim.clip_grad_norm)
        skipped = not (np.isfinite(norm) and np.isfinite(loss))
        if not skipped:
            self.apply_gradients(gradients)
        return norm, skipped

    def apply_gradients(self, gradients: Weights) -> None:
        self.weights = self.optimizers.apply(self.weights, gradients)
        self._refresh_copy()

    def _copy(self, weights: Weights) -> Weights:
        """The weights that compute: the trained weights themselves, or bfloat16 copies of them."""
        if not self._has_copy:
            return weights
        return {
            name: weight if name.startswith(VALUE_HEAD_PREFIX) else weight.astype(mx.bfloat16)
            for name, weight in weights.items()
        }

    def _refresh_copy(self) -> None:
        self._weights_in_use = self._copy(self.weights)
        self.lm.set_weights(self._weights_in_use)
        mx.eval(self._weights_in_use)

    def set_learning_rate(self, lr: float) -> None:
        self.optimizers.set_learning_rate(lr)

    def export(self, folder: Path) -> None:
        """Write the model (or LoRA adapter) and tokenizer as mlx-lm loads them."""
        save_model_or_adapter(folder, self.loaded, self.weights)
        self.tokenizer.inner.save_pretrained(folder)

    def save(self, folder: Path) -> None:
        """Write everything a resumed run needs: export() and the optimisers' states."""
        self.export(folder / "model")
        self.optimizers.save(folder / _OPTIMIZER)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. The reference does not change.

        Raises CheckpointError when another model wrote it, or it cannot be read.
        """
        weights = load_weights(folder / "model", self.weights, is_lora=self._is_lora)
        self.optimizers.load(folder / _OPTIMIZER)
        self.weights = weights
        self._refresh_copy()
