"""A policy's machine on MLX: one language model, fully trained or with a LoRA adapter.

Trained weights are kept in float32. With precision bf16 a fully trained model plays, scores and
learns through bfloat16 copies of them. MLX arrays never change, so keeping a set of weights as the
reference costs nothing until an update creates new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import get_total_parameters

from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.backends.mlx.engine import MlxRows
from wordle_rl.backends.mlx.load import LoadedModel
from wordle_rl.backends.mlx.optimizers import Optimizers, clip_gradients
from wordle_rl.backends.mlx.save import (
    VALUE_HEAD_PREFIX,
    Weights,
    load_weights,
    save_model_or_adapter,
)
from wordle_rl.backends.saving import save_tokenizer
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.runs.processes import Processes
from wordle_rl.runs.timing import Timers

_OPTIMIZER = "optimizer.safetensors"


class MlxMachine:
    """A wordle_rl.policy.policy.Machine on one device, in one process."""

    scale_fell = False

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        optim: Optim,
        precision: Precision = "fp32",
        gradient_checkpointing: bool = False,
    ) -> None:
        self.loaded, self.tokenizer = loaded, loaded.tokenizer
        self.precision: Precision = precision
        self.timers, self._optim = Timers(), optim
        loaded.model.eval()  # dropout stays off: scores must not depend on chance
        self.weights: Weights = dict(tree_flatten(loaded.model.trainable_parameters()))
        self.optimizers = Optimizers(self.weights, optim, precision)
        self._gradients: Weights = {}
        self._is_lora = loaded.adapter is not None
        self._has_copy = precision == "bf16" and not self._is_lora
        self.lm = MlxLM(loaded.model)
        if gradient_checkpointing:
            self.lm.checkpoint_layers()
        self.refresh_copy()

    @property
    def device_bytes(self) -> int:
        """Memory of the arrays on the GPU, or 0 on the CPU."""
        return mx.get_active_memory() if mx.metal.is_available() else 0

    @property
    def num_parameters(self) -> tuple[int, int]:
        """Trainable and all parameters. Quantised weights count as the weights they represent."""
        num_trained = sum(weight.size for weight in self.weights.values())
        num_total = get_total_parameters(self.lm.model)  # of the base, without LoRA
        return num_trained, num_total + (num_trained if self._is_lora else 0)

    @property
    def is_finite(self) -> bool:
        return all(bool(mx.isfinite(weight).all()) for weight in self.weights.values())

    def make_rows(self) -> MlxRows:
        return MlxRows(self.lm)

    def keep(self) -> Callable[[], AbstractContextManager[None]]:
        return partial(self.lm.use_weights, dict(self._weights_in_use))

    def rehearsal(self) -> None:
        """None: a GPU waits for much else."""

    def add_value_head(self) -> None:
        self.weights = self.weights | self.lm.add_value_head()
        self.optimizers = Optimizers(self.weights, self._optim, self.precision)
        self.refresh_copy()

    def add_gradient(self, loss: Callable[[], tuple[Any, dict[str, Any]]]) -> dict[str, float]:
        def compute(weights: Weights) -> Any:
            with self.lm.use_weights(self._copy(weights)):
                return loss()

        with self.timers("update"):
            (_, parts), grads = mx.value_and_grad(compute)(self.weights)
            sums = self._gradients
            # Contiguous, because a sum over a transposed array is rounded in another order.
            grads = {n: sums[n] + g if sums else mx.contiguous(g) for n, g in grads.items()}
            mx.eval(parts, grads)
            self._gradients = grads
        return {name: value.item() for name, value in parts.items()}

    def drop_gradients(self) -> None:
        self._gradients = {}

    def share_gradients(self, processes: Processes) -> None:
        assert processes.size == 1, "MLX trains in one process, which has all gradients"

    def copy_gradients(self) -> Weights:
        return self._gradients  # MLX arrays never change

    def multiply_gradients(self, first: Any, processes: Processes) -> tuple[float, float, float]:
        sums = np.zeros(3)
        for name, gradient in self._gradients.items():
            total = np.array(gradient).astype(np.float64).ravel()
            part = np.array(first[name]).astype(np.float64).ravel() if first else 0.0 * total
            sums += [total @ total, total @ part, part @ part]
        total, product, square = sums.tolist()
        return total, product, square

    def step(self, *, apply: bool) -> float:
        norm = self._clip_gradients()
        if apply and math.isfinite(norm):
            self._take_step()
        self.drop_gradients()
        return norm

    def _clip_gradients(self) -> float:
        if not self._gradients:  # there was nothing to train
            return 0.0
        self._gradients, norm = clip_gradients(self._gradients, self._optim.clip_grad_norm)
        return norm

    def _take_step(self) -> None:
        if self._gradients:
            self.apply_gradients(self._gradients)

    def apply_gradients(self, gradients: Weights) -> None:
        self.weights = self.optimizers.apply(self.weights, gradients)
        self.refresh_copy()

    def _copy(self, weights: Weights) -> Weights:
        """The weights that compute: the trained weights themselves, or bfloat16 copies of them."""
        if not self._has_copy:
            return weights
        return {
            name: weight if name.startswith(VALUE_HEAD_PREFIX) else weight.astype(mx.bfloat16)
            for name, weight in weights.items()
        }

    def refresh_copy(self) -> None:
        """Let the weights that compute follow the trained ones, after those changed."""
        self._weights_in_use = self._copy(self.weights)
        self.lm.set_weights(self._weights_in_use)
        mx.eval(self._weights_in_use)

    def set_learning_rate(self, lr: float) -> None:
        self.optimizers.set_learning_rate(lr)

    def export(self, folder: Path) -> None:
        """Write the model (or LoRA adapter) and tokenizer as mlx-lm loads them."""
        save_model_or_adapter(folder, self.loaded, self.weights)
        save_tokenizer(self.tokenizer.inner, folder)

    def save(self, folder: Path) -> None:
        """Write export() and the optimisers' states."""
        self.export(folder / "model")
        self.optimizers.save(folder / _OPTIMIZER)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. Raises CheckpointError if that was another model's."""
        weights = load_weights(folder / "model", self.weights, is_lora=self._is_lora)
        self.optimizers.load(folder / _OPTIMIZER)
        self.weights = weights
        self.refresh_copy()
