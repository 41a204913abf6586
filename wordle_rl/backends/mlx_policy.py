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

from wordle_rl.algorithms.base import Algorithm, Terms
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.mlx_cache import ceiling
from wordle_rl.backends.mlx_causal_lm import MlxLM
from wordle_rl.backends.mlx_engine import MlxEngine, Steps
from wordle_rl.backends.mlx_files import load_weights, save_model
from wordle_rl.backends.mlx_models import Loaded
from wordle_rl.backends.mlx_optimizers import Optimizers, Weights
from wordle_rl.batching import micro_batches
from wordle_rl.optim import Optim
from wordle_rl.processes import ALONE, Processes
from wordle_rl.records import Batch, FloatArray
from wordle_rl.timing import Timers

_OPTIMIZER, _RANDOM = "optimizer.safetensors", "random.safetensors"


class MlxPolicy:
    """Implements wordle_rl.policy.Policy on one device.

    micro_batch_tokens: padded tokens per forward and backward pass; rounded up by at most a third.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        temperature: float,
        optim: Optim,
        precision: str = "fp32",
        micro_batch_tokens: int = 16_384,
        max_context: int = 1024,
        compiled: bool = True,
        gradient_checkpointing: bool = False,
    ) -> None:
        self.loaded = loaded
        self.tokenizer: HFTokenizer = loaded.tokenizer
        self.timers = Timers()
        self.processes: Processes = ALONE
        self.optim = optim
        loaded.model.eval()  # dropout stays off: scores must not depend on chance
        self.weights: Weights = dict(tree_flatten(loaded.model.trainable_parameters()))
        tables = {n for n in self.weights if "embed_tokens" in n or "lm_head" in n}
        self.optimizers = Optimizers(self.weights, tables, optim)
        self._temperature = temperature
        self._micro_batch_tokens = micro_batch_tokens
        self._is_lora = loaded.adapter is not None
        self._copies = precision == "bf16" and not self._is_lora
        self.lm = MlxLM(loaded.model)
        if gradient_checkpointing:
            self.lm.checkpoint_layers()
        self._compile: Any = mx.compile if compiled else lambda function: function
        self._compiled: dict[Any, Any] = {}  # one per algorithm; each holds a trace per shape
        self._steps = Steps(self.lm, max_context=max_context, compiled=compiled)
        self._reference: Weights | None = None
        self._refresh_copy()

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
            self._steps, self._computing, stop_ids=self.tokenizer.stop_ids, timers=self.timers
        )

    def keep_reference(self) -> None:
        """Make the present weights the reference."""
        self._reference = dict(self._computing)

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """Log-probabilities [N, T] of the trained tokens as the trainer sees them, else 0."""
        if reference and self._reference is None:
            raise RuntimeError("keep_reference() was not called before a reference score")
        weights = self._reference if reference else self._computing
        if "score" not in self._compiled:
            self._compiled["score"] = self._compile(self._score)
        out = np.zeros(batch.ids.shape, np.float32)
        with self.timers("reference" if reference else "score"):
            for rows in micro_batches(batch, self._micro_batch_tokens):
                piece = _Piece(batch, rows)
                scored = np.array(self._compiled["score"](weights, piece.ids, piece.places))
                values = piece.of(scored)
                out[rows, : values.shape[1]] = values
        return out

    def _score(self, weights: Weights, ids: mx.array, places: mx.array) -> mx.array:
        with self.lm.using(weights):
            return self.lm.logprobs(ids, places, self._temperature)

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, micro-batched inside.

        Returns metrics; `update/skipped` is 1 when a loss or gradient was not finite and the
        weights were left as they were.
        """
        total, gap = 0.0, 0.0
        sums: dict[str, float] = {}
        gradients = {name: mx.zeros_like(weight) for name, weight in self.weights.items()}
        for rows in micro_batches(batch, self._micro_batch_tokens):
            with self.timers("update"):
                piece = _Piece(batch, rows)
                loss, parts, new = self._gradient(piece, algorithm)
                gradients = {name: gradients[name] + new[name] for name in gradients}
                mx.eval(loss, parts, gradients)
            total += loss.item()
            gap = max(gap, parts.pop("ratio_gap").item())
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + value.item()
        with self.timers("optimizer"):
            norm, skipped = self._step(gradients, total)
        tokens = max(float(batch.trained.sum()), 1.0)
        metrics = {f"policy/{name}": value / tokens for name, value in sums.items()}
        metrics |= {"loss": total, "grad_norm": norm, "update/skipped": float(skipped)}
        metrics["policy/ratio_gap"] = gap
        return metrics

    def _gradient(self, piece: _Piece, algorithm: Algorithm) -> Any:
        """Loss, sums of metrics, and the gradient by name, of a part of a batch."""
        key = (algorithm, *(name in piece.values for name in _OPTIONAL))
        if key not in self._compiled:

            def loss(weights: Weights, ids: mx.array, places: mx.array, values: Weights) -> Any:
                copies = {n: w.astype(mx.bfloat16) for n, w in weights.items()}
                with self.lm.using(copies if self._copies else weights):
                    found = self.lm.logprobs(ids, places, self._temperature)
                return _loss(algorithm, found, ids.shape, places, values)

            self._compiled[key] = self._compile(mx.value_and_grad(loss))
        (loss, parts), gradients = self._compiled[key](
            self.weights, piece.ids, piece.places, piece.values
        )
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

    def _refresh_copy(self) -> None:
        """What plays and scores: the weights themselves, or their bfloat16 copies."""
        copies = {n: w.astype(mx.bfloat16) for n, w in self.weights.items()}
        self._computing = copies if self._copies else self.weights
        self.lm.hold(self._computing)
        mx.eval(self._computing)

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

        Raises ValueError when another model wrote it.
        """
        weights = load_weights(folder / "model", self.weights, is_lora=self._is_lora)
        self.optimizers.load(folder / _OPTIMIZER)
        random: Any = mx.load(str(folder / _RANDOM))
        high, low = random["key"].tolist()
        mx.random.seed(high << 32 | low)  # a seed is a key, and the other way round
        self.weights = weights
        self._refresh_copy()


_OPTIONAL = ("old_logprobs", "ref_logprobs")


class _Piece:
    """Some rows of a batch as arrays, their shapes rounded up so that few are compiled."""

    def __init__(self, batch: Batch, rows: np.ndarray) -> None:
        width = max(int(batch.lengths[rows].max()), 1)  # a piece may be nothing but padding
        self._trained = batch.trained[rows, :width]
        shape = (ceiling(len(rows)), ceiling(width))
        ids = np.zeros(shape, np.int32)
        ids[: len(rows), :width] = batch.ids[rows, :width]
        self.ids = mx.array(ids)
        row, token = np.nonzero(self._trained)
        self._count = len(row)
        places = np.ones(ceiling(max(self._count, 1)), np.int32)  # what is too many goes unused
        places[: self._count] = row * shape[1] + token
        self.places = mx.array(places)
        self.values: Weights = {"count": mx.array(self._count)}
        for name in ("trained", "advantages", "weights", "sampler_logprobs", *_OPTIONAL):
            given = getattr(batch, name)
            if given is not None:
                values = np.zeros(shape, np.float32)
                values[: len(rows), :width] = given[rows, :width]
                self.values[name] = mx.array(values)

    def of(self, scored: np.ndarray) -> FloatArray:
        """Values at the trained places, [rows, T], 0 elsewhere."""
        out = np.zeros(self._trained.shape, np.float32)
        out[self._trained] = scored[: self._count]
        return out


def _loss(
    algorithm: Algorithm, found: mx.array, shape: tuple[int, ...], places: mx.array, values: Weights
) -> tuple[mx.array, dict[str, mx.array]]:
    """Weighted sum of the algorithm's loss, and the sums of its metrics over trained tokens."""
    used = mx.arange(len(places)) < values["count"]
    found = mx.where(used, found, 0.0)
    size = shape[0] * shape[1]
    logprobs = mx.zeros((size,)).at[places].add(found).reshape(shape)
    now = mx.stop_gradient(logprobs)
    trained = values["trained"]
    old = values.get("old_logprobs", now)
    terms = Terms(
        logprobs=logprobs,
        old_logprobs=old,
        ref_logprobs=values.get("ref_logprobs"),
        advantages=values["advantages"],
        trained=trained,
    )
    per_token, extra = algorithm.loss(mx, terms)
    extra |= {"sampler_gap": mx.abs(now - values["sampler_logprobs"]), "surprise": -now}
    parts = {k: mx.sum(mx.stop_gradient(v).astype(mx.float32) * trained) for k, v in extra.items()}
    parts["ratio_gap"] = mx.max(mx.abs(mx.exp(now - old) - 1))
    return mx.sum(per_token * values["weights"]), parts
