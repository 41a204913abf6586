"""MLX's optimisers for the settings in optim, with the same formulas as torch's."""

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.optimizers import AdamW, Optimizer

from wordle_rl.backends.adapters import LM_HEAD
from wordle_rl.backends.mlx.save import VALUE_HEAD_PREFIX, Weights, read_arrays
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim, muon_size
from wordle_rl.runs.checkpoints import CheckpointError


class Muon(Optimizer):
    """Orthogonal steps for matrices, as in torch.optim.Muon with match_rms_adamw."""

    def __init__(self, optim: Optim, precision: Precision) -> None:
        """precision: what matrices are multiplied in."""
        super().__init__()
        self._maybe_schedule("learning_rate", optim.lr)
        self._products = mx.float32 if precision == "fp32" else mx.bfloat16
        self._momentum, self._weight_decay = optim.momentum, optim.weight_decay

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["momentum"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        average = state["momentum"] + (gradient - state["momentum"]) * (1.0 - self._momentum)
        state["momentum"] = average
        lookahead = gradient + (average - gradient) * self._momentum  # Nesterov momentum
        step = orthogonalize(lookahead, self._products)
        return (
            parameter * (1.0 - self.learning_rate * self._weight_decay)
            - self.learning_rate * muon_size(parameter.shape) * step
        )


def orthogonalize(matrix: mx.array, products: mx.Dtype) -> mx.array:
    """As orthogonalize() in torch/optimizers.py, with the products of another precision."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.astype(products)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / mx.maximum(mx.linalg.norm(x.astype(mx.float32)), 1e-7).astype(x.dtype)
    for _ in range(5):
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


def _build_adamw(optim: Optim, weight_decay: float) -> AdamW:
    betas = [optim.beta1, optim.beta2]
    return AdamW(optim.lr, betas=betas, weight_decay=weight_decay, bias_correction=True)


class Optimizers:
    """The optimisers of a policy, each weight in exactly one."""

    def __init__(self, weights: Weights, optim: Optim, precision: Precision = "fp32") -> None:
        """precision: what Muon multiplies matrices in. The weights are always float32."""
        self._name = optim.name
        head = [name for name in weights if name.startswith(VALUE_HEAD_PREFIX)]
        tables = ("embed_tokens", LM_HEAD)  # of rows
        matrices = [
            name
            for name, weight in weights.items()
            if optim.name == "muon"
            and weight.ndim == 2
            and not any(table in name for table in tables)
        ]
        rest = [name for name in weights if name not in {*head, *matrices}]
        # An optimiser, the names of its weights, and their share of the learning rate.
        parts: list[tuple[Any, list[str], float]] = [
            (_build_adamw(optim, optim.weight_decay), rest, optim.rest_share),
            (Muon(optim, precision), matrices, 1.0),
            (_build_adamw(optim, 0.0), head, 1.0),
        ]
        self._parts = [part for part in parts if part[1]]
        for optimizer, names, _ in self._parts:
            optimizer.init({name: weights[name] for name in names})

    def set_learning_rate(self, lr: float) -> None:
        for optimizer, _, share in self._parts:
            optimizer.learning_rate = lr * share

    def apply(self, weights: Weights, gradients: Weights) -> Weights:
        """The weights after one step of all optimisers."""
        result = dict(weights)
        for optimizer, names, _ in self._parts:
            result |= optimizer.apply_gradients(
                {name: gradients[name] for name in names}, {name: weights[name] for name in names}
            )
        mx.eval(result, [optimizer.state for optimizer, *_ in self._parts])
        return result

    def save(self, file: Path) -> None:
        mx.save_safetensors(str(file), self._states(), {"optimizer": self._name})

    def load(self, file: Path) -> None:
        """Restore what save() wrote, but keep the current settings. Raises CheckpointError."""
        states, metadata = read_arrays(file)
        shapes, own_shapes = (
            {name: (array.shape, array.dtype) for name, array in arrays.items()}
            for arrays in (states, self._states())
        )
        if metadata.get("optimizer") != self._name or shapes != own_shapes:
            raise CheckpointError(
                f"{file} was written with another optimiser or model: choose optim= as it was then"
            )
        for name, value in states.items():
            part, *path, key = name.split(":")
            state = self._parts[int(part)][0].state
            for branch in path:
                state = state[branch]
            state[key] = value

    def _states(self) -> Weights:
        """Each optimiser's step, and what it keeps of each weight."""
        states: Weights = {}
        for i, (optimizer, names, _) in enumerate(self._parts):
            states[f"{i}:step"] = optimizer.state["step"]
            for name in names:
                entries = optimizer.state[name]
                states |= {f"{i}:{name}:{key}": value for key, value in entries.items()}
        return states
