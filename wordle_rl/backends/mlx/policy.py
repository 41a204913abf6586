"""The policy on MLX: rollouts, scores and updates of one language model.

Full fine-tuning or LoRA. Weights that are trained are kept in float32. With precision bf16 a fully
trained model plays, scores and learns through bfloat16 copies of them. MLX arrays never change, so
keeping a set of weights as the reference costs nothing until an update makes new ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.backends.mlx.engine import CompiledModel, MlxEngine
from wordle_rl.backends.mlx.load import Loaded
from wordle_rl.backends.mlx.loss import Arrays, Piece, weighted_loss
from wordle_rl.backends.mlx.optimizers import Optimizers, Weights
from wordle_rl.backends.mlx.weights import HEAD, load_weights, read_arrays, save_model
from wordle_rl.policy.batch import Batch, FloatArray, micro_batches
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import LARGEST
from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.processes import ALONE, Processes
from wordle_rl.runs.timing import Timers

_OPTIMIZER, _RANDOM = "optimizer.safetensors", "random.safetensors"


class MlxPolicy:
    """Implements wordle_rl.policy.policy.Policy on one device.

    micro_batch_tokens: padded tokens per forward and backward pass; rounded up by at most a third
    where it is compiled.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        temperature: float,
        optim: Optim,
        precision: Precision = "fp32",
        micro_batch_tokens: int = 16_384,
        max_context: int = 1024,
        compiled: bool = True,
        gradient_checkpointing: bool = False,
    ) -> None:
        self.loaded = loaded
        self.tokenizer: HFTokenizer = loaded.tokenizer
        self.timers = Timers()
        self.processes: Processes = ALONE
        self.computing = Computing(precision=precision)  # replaced by what was timed
        self.optim = optim
        loaded.model.eval()  # dropout stays off: scores must not depend on chance
        self.weights: Weights = dict(tree_flatten(loaded.model.trainable_parameters()))
        self.optimizers = self._fresh_optimizers()
        self._temperature = temperature
        self._micro_batch_tokens = micro_batch_tokens
        self._is_lora = loaded.adapter is not None
        self._copies = precision == "bf16" and not self._is_lora
        self.lm = MlxLM(loaded.model)
        if gradient_checkpointing:
            self.lm.checkpoint_layers()
        self._compile: Any = mx.compile if compiled else lambda function: function
        self._compiled: dict[Any, Any] = {}  # one per algorithm; each holds a trace per shape
        self._steps = CompiledModel(self.lm, max_context=max_context, compiled=compiled)
        self._reference: Weights | None = None
        self._refresh_copy()

    def _fresh_optimizers(self) -> Optimizers:
        tables = {n for n in self.weights if "embed_tokens" in n or "lm_head" in n}
        head = {n for n in self.weights if n.startswith(HEAD)}
        return Optimizers(self.weights, tables, self.optim, head, self.computing.precision)

    @property
    def device_bytes(self) -> int:
        """Memory of the arrays on the GPU; 0 on the CPU."""
        on_cpu = mx.default_device() == mx.Device(mx.cpu)
        return 0 if on_cpu else mx.get_active_memory()

    @property
    def num_parameters(self) -> tuple[int, int]:
        """Trainable and all parameters; of quantised weights, what they stand for."""
        everything = 0
        for _, module in self.lm.model.named_modules():
            bits = getattr(module, "bits", None)
            for name, value in module.items():
                if isinstance(value, mx.array) and not name.startswith("_"):
                    if bits and name in ("scales", "biases"):
                        continue
                    everything += value.size * (32 // bits if bits and name == "weight" else 1)
        return sum(w.size for w in self.weights.values()), everything

    def engine(self) -> MlxEngine:
        """A fresh engine on the present weights."""
        return MlxEngine(
            self._steps, self._weights_in_use, stop_ids=self.tokenizer.stop_ids, timers=self.timers
        )

    def keep_reference(self) -> None:
        """Make the present weights the reference."""
        self._reference = dict(self._weights_in_use)

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """Log-probabilities [N, T] of the trained tokens as the trainer sees them, else 0."""
        if reference and self._reference is None:
            raise RuntimeError("keep_reference() was not called before a reference score")
        weights = self._reference if reference else self._weights_in_use
        with self.timers("reference" if reference else "score"):
            return self._found("logprobs", weights, batch)

    def add_value_head(self) -> None:
        """Let a linear head on the trunk's hidden states learn values from now on."""
        self.weights = self.weights | self.lm.add_value_head()
        self.optimizers = self._fresh_optimizers()
        self._refresh_copy()

    def values(self, batch: Batch) -> FloatArray:
        """Of the value head [N, T] before each trained token was drawn, else 0."""
        if not any(name.startswith(HEAD) for name in self.weights):
            raise RuntimeError("add_value_head() was not called before values were asked for")
        with self.timers("values"):
            return self._found("values", self._weights_in_use, batch)

    def _found(self, what: str, weights: Weights | None, batch: Batch) -> FloatArray:
        """One of the outputs at the trained tokens of a batch [N, T], else 0."""

        def outputs(weights: Weights, arrays: Arrays) -> mx.array:
            with self.lm.using(weights):
                found = self.lm.outputs(arrays, self._temperature, values=what == "values")
            return getattr(found, what)

        out = np.zeros(batch.ids.shape, np.float32)
        for rows in micro_batches(batch, self._micro_batch_tokens):
            piece = Piece(batch, rows, self._steps.size)
            key = (what, *piece.scored)
            if key not in self._compiled:
                self._compiled[key] = self._compile(outputs)
            found = piece.of(np.array(self._compiled[key](weights, piece.scored)))
            out[rows, : found.shape[1]] = found
        return out

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, micro-batched inside.

        Returns metrics; `update/skipped` is 1 when a loss or gradient was not finite and the
        weights were left as they were.
        """
        total = 0.0
        sums: dict[str, float] = {}
        largest: dict[str, float] = dict.fromkeys(LARGEST, 0.0)
        gradients = {name: mx.zeros_like(weight) for name, weight in self.weights.items()}
        for rows in micro_batches(batch, self._micro_batch_tokens):
            with self.timers("update"):
                piece = Piece(batch, rows, self._steps.size)
                loss, parts, new = self._gradient(piece, algorithm)
                gradients = {name: gradients[name] + new[name] for name in gradients}
                mx.eval(loss, parts, gradients)
            total += loss.item()
            largest = {name: max(most, parts.pop(name).item()) for name, most in largest.items()}
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + value.item()
        with self.timers("optimizer"):
            norm, skipped = self._step(gradients, total)
        tokens = max(float(batch.trained.sum()), 1.0)
        metrics = {f"policy/{name}": value / tokens for name, value in sums.items()}
        metrics |= {f"policy/{name}": value for name, value in largest.items()}
        return metrics | {"loss": total, "grad_norm": norm, "update/skipped": float(skipped)}

    def _gradient(self, piece: Piece, algorithm: Algorithm) -> Any:
        """Loss, sums of metrics, and the gradient by name, of a part of a batch."""
        key = (algorithm, *piece.arrays)
        if key not in self._compiled:

            def loss(weights: Weights, arrays: Arrays) -> Any:
                with self.lm.using(self._copy(weights)):
                    outputs = self.lm.outputs(
                        arrays, self._temperature,
                        entropy=algorithm.needs_entropy, values=algorithm.needs_values,
                    )  # fmt: skip
                return weighted_loss(algorithm, outputs, arrays)

            self._compiled[key] = self._compile(mx.value_and_grad(loss))
        (loss, parts), gradients = self._compiled[key](self.weights, piece.arrays)
        return loss, parts, gradients

    def _step(self, gradients: Weights, loss: float) -> tuple[float, bool]:
        squares = mx.stack([mx.sum(mx.square(g)) for g in gradients.values()])
        norm = float(mx.sqrt(mx.sum(squares)))
        skipped = not (np.isfinite(norm) and np.isfinite(loss))
        if not skipped:
            limit = self.optim.clip_grad_norm
            if limit and norm > limit:
                gradients = {n: g * (limit / (norm + 1e-6)) for n, g in gradients.items()}
            self.apply_gradients(gradients)
        return norm, skipped

    def apply_gradients(self, gradients: Weights) -> None:
        self.weights = self.optimizers.apply(self.weights, gradients)
        self._refresh_copy()

    def _copy(self, weights: Weights) -> Weights:
        """What plays, scores and learns: the weights themselves, or their bfloat16 copies."""
        if not self._copies:
            return weights
        return {n: w if n.startswith(HEAD) else w.astype(mx.bfloat16) for n, w in weights.items()}

    def _refresh_copy(self) -> None:
        self._weights_in_use = self._copy(self.weights)
        self.lm.hold(self._weights_in_use)
        mx.eval(self._weights_in_use)

    def set_learning_rate(self, lr: float) -> None:
        self.optimizers.set_learning_rate(lr)

    def export(self, folder: Path) -> None:
        """Write the model (or LoRA adapter) and tokenizer as mlx-lm loads them."""
        save_model(folder, self.loaded, self.weights)
        self.tokenizer.inner.save_pretrained(folder)

    def save(self, folder: Path) -> None:
        """Write all that a resumed run needs: export(), the optimisers' and MLX's random state."""
        self.export(folder / "model")
        self.optimizers.save(folder / _OPTIMIZER)
        random: Any = mx.random.state
        mx.save_safetensors(str(folder / _RANDOM), {"key": random[0]})

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. The reference is left as it is.

        Raises CheckpointError when another model wrote it, or it cannot be read.
        """
        weights = load_weights(folder / "model", self.weights, is_lora=self._is_lora)
        self.optimizers.load(folder / _OPTIMIZER)
        random: Any = read_arrays(folder / _RANDOM)[0].get("key")
        if random is None or random.shape != (2,) or random.dtype != mx.uint32:
            raise CheckpointError(f"{folder / _RANDOM}: not the state of MLX's generator")
        high, low = random.tolist()
        mx.random.seed(high << 32 | low)  # a seed is a key, and the other way round
        self.weights = weights
        self._refresh_copy()
