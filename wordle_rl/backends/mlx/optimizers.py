"""MLX's optimisers for the settings in optim, with the same formulas as torch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.optimizers import AdamW, Optimizer

from wordle_rl.backends.mlx.save import Weights, read_arrays
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.runs.checkpoints import CheckpointError

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration
_ITERATIONS = 5


class Muon(Optimizer):
    """Orthogonal steps for matrices, as in torch.optim.Muon with match_rms_adamw.

    Sources: K. Jordan, kellerjordan.github.io/posts/muon; arXiv 2502.16982 (size of the step).
    """

    def __init__(
        self, *, lr: float, momentum: float, weight_decay: float, products: mx.Dtype
    ) -> None:
        """products: type of the matrix products."""
        super().__init__()
        self._products = products
        self._maybe_schedule("learning_rate", lr)
        self.momentum, self.weight_decay = momentum, weight_decay

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["momentum"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        held = state["momentum"] + (gradient - state["momentum"]) * (1.0 - self.momentum)
        state["momentum"] = held
        step = orthogonalize(gradient + (held - gradient) * self.momentum, self._products)
        size = 0.2 * max(parameter.shape) ** 0.5
        return (
            parameter * (1.0 - self.learning_rate * self.weight_decay)
            - self.learning_rate * size * step
        )


def orthogonalize(matrix: mx.array, products: mx.Dtype = mx.bfloat16) -> mx.array:
    """Roughly the nearest matrix with orthogonal rows or columns, by Newton-Schulz iteration."""
    a, b, c = _COEFFICIENTS
    x = matrix.astype(products)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / mx.maximum(mx.linalg.norm(x.astype(mx.float32)), 1e-7).astype(x.dtype)
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.T if tall else x).astype(matrix.dtype)


def clip_gradients(gradients: Weights, limit: float) -> tuple[Weights, float]:
    """The gradients scaled down to a norm of at most limit, and their norm before.

    limit: 0 for no clipping.
    """
    squares = mx.stack([mx.sum(mx.square(g)) for g in gradients.values()])
    norm = float(mx.sqrt(mx.sum(squares)))
    if limit and norm > limit:
        gradients = {n: g * (limit / (norm + 1e-6)) for n, g in gradients.items()}
    return gradients, norm


def _describe_arrays(arrays: Weights) -> dict[str, Any]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _build_adamw(optim: Optim, weight_decay: float) -> AdamW:
    betas = [optim.beta1, optim.beta2]
    return AdamW(optim.lr, betas=betas, weight_decay=weight_decay, bias_correction=True)


class Optimizers:
    """The optimisers of a policy, each weight in exactly one."""

    def __init__(
        self,
        weights: Weights,
        tables: set[str],
        optim: Optim,
        value_head: set[str] | None = None,
        precision: Precision = "fp32",
    ) -> None:
        """tables: names of the embedding and the head, which Muon leaves to AdamW.

        value_head: names of weights that do not decay and always learn at the full rate.
        precision: what Muon multiplies matrices in. The weights are always float32.
        """
        self._value_head = sorted(value_head or ())
        self._optim = optim
        muon = {
            name
            for name, weight in weights.items()
            if optim.name == "muon" and weight.ndim == 2 and name not in tables
        }
        apart = muon.union(self._value_head)
        self._parts: list[tuple[Any, list[str]]] = []  # optimiser, names of its weights
        if rest := [name for name in weights if name not in apart]:
            self._parts.append((_build_adamw(optim, optim.weight_decay), rest))
        if muon:
            one = Muon(
                lr=optim.lr, momentum=optim.momentum, weight_decay=optim.weight_decay,
                products=mx.float32 if precision == "fp32" else mx.bfloat16,
            )  # fmt: skip
            self._parts.append((one, sorted(muon)))
        if self._value_head:
            self._parts.append((_build_adamw(optim, 0.0), self._value_head))
        for optimizer, names in self._parts:
            optimizer.init({name: weights[name] for name in names})

    def set_learning_rate(self, lr: float) -> None:
        """Set the rate of the next steps: lr, or its share for what Muon leaves to AdamW."""
        for optimizer, names in self._parts:
            # A new value head always learns at the full rate.
            plain = isinstance(optimizer, AdamW) and names is not self._value_head
            rest = self._optim.name == "muon" and plain
            optimizer.learning_rate = lr * self._optim.rest_lr_ratio if rest else lr

    def apply(self, weights: Weights, gradients: Weights) -> Weights:
        """The weights after one step of all optimisers."""
        new = dict(weights)
        for optimizer, names in self._parts:
            new |= optimizer.apply_gradients(
                {name: gradients[name] for name in names}, {name: weights[name] for name in names}
            )
        mx.eval(new, [optimizer.state for optimizer, _ in self._parts])
        return new

    def save(self, file: Path) -> None:
        mx.save_safetensors(str(file), self._flatten_state(), {"optimizer": self._optim.name})

    def load(self, file: Path) -> None:
        """Restore what save() wrote, but keep the current settings. Raises CheckpointError."""
        saved, metadata = read_arrays(file)
        own = self._flatten_state()
        same_kind = metadata.get("optimizer") == self._optim.name
        if not same_kind or _describe_arrays(saved) != _describe_arrays(own):
            raise CheckpointError(
                f"{file} was written with another optimiser: choose optim= as it was then"
            )
        for i, (optimizer, names) in enumerate(self._parts):
            optimizer.state["step"] = saved[f"{i}:step"]
            for name in names:
                held = optimizer.state[name]
                optimizer.state[name] = {key: saved[f"{i}:{name}:{key}"] for key in held}

    def _flatten_state(self) -> Weights:
        flat = {}
        for i, (optimizer, names) in enumerate(self._parts):
            flat[f"{i}:step"] = optimizer.state["step"]
            for name in names:
                for key, value in optimizer.state[name].items():
                    flat[f"{i}:{name}:{key}"] = value
        return flat
