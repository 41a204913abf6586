"""What a test asks of a backend, so that the same test runs on torch and on MLX.

Policies of both hold the weights of the torch model that they are given.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.helpers import tiny


@dataclass(frozen=True)
class Backend:
    name: str
    policy_of: Callable[..., Any]  # (model, tokenizer, *, temperature, optim and policy settings)
    gradients: Callable[..., dict[str, torch.Tensor]]  # (policy, batch, algorithm)
    weights_of: Callable[[Any], dict[str, torch.Tensor]]  # copies, of a policy and its value head
    # (formula of a namespace and arrays, *arrays): its values summed up, and their slope by the
    # first array
    value_and_slope: Callable[..., tuple[float, np.ndarray]]
    digits: float  # how close a slope is to the exact one


def torch_backend() -> Backend:
    def value_and_slope(formula: Any, *arrays: np.ndarray) -> tuple[float, np.ndarray]:
        first, *rest = (torch.from_numpy(np.asarray(a, np.float64)) for a in arrays)
        first.requires_grad_()
        value = formula(torch, first, *rest).sum()
        value.backward()
        assert first.grad is not None
        return value.item(), first.grad.numpy()

    def weights_of(policy: Any) -> dict[str, torch.Tensor]:
        head = policy.machine.lm.value_head
        return tiny.weights_of(policy.machine.model) | (tiny.weights_of(head) if head else {})

    return Backend(
        name="torch",
        policy_of=tiny.policy_of,
        gradients=tiny.gradients,
        weights_of=weights_of,
        value_and_slope=value_and_slope,
        digits=1e-8,
    )


def mlx_backend() -> Backend:
    from wordle_rl.backends import borrow_blas

    borrow_blas()  # before MLX is imported, as in a run
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from tests.helpers.mlx_tiny import mlx_gradients, mlx_policy_of

    def tensors(arrays: Any) -> dict[str, torch.Tensor]:
        floats = {name: mx.array(array).astype(mx.float32) for name, array in dict(arrays).items()}
        return {name: torch.tensor(np.array(array)) for name, array in floats.items()}

    def value_and_slope(formula: Any, *arrays: np.ndarray) -> tuple[float, np.ndarray]:
        inputs = [mx.array(np.asarray(a, np.float32)) for a in arrays]
        value, slope = mx.value_and_grad(lambda *a: formula(mx, *a).sum())(*inputs)
        return value.item(), np.array(slope)

    return Backend(
        name="mlx",
        policy_of=mlx_policy_of,
        gradients=lambda *arguments: tensors(mlx_gradients(*arguments)),
        weights_of=lambda policy: (
            tensors(tree_flatten(policy.machine.lm.model.parameters()))
            | {
                f"trained {name}": weight
                for name, weight in tensors(policy.machine.weights).items()
            }
        ),
        value_and_slope=value_and_slope,
        digits=1e-5,
    )


BACKENDS = {"torch": torch_backend, "mlx": mlx_backend}
