"""torch's optimisers for the settings in optim. A policy steps all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.runs.checkpoints import CheckpointError


class ExactMuon(torch.optim.Muon):
    """torch's Muon with products in float32, for runs in that precision.

    It always uses Nesterov momentum and the step size of match_rms_adamw. It keeps the same state
    as torch's Muon, so either one can load the other's checkpoint.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step: momentum, orthogonal direction, weight decay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    def _move(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1.0 - group["momentum"])
        ahead = gradient.lerp(average, group["momentum"])  # Nesterov momentum
        parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
        size = 0.2 * max(parameter.shape) ** 0.5  # match_rms_adamw, arXiv 2502.16982
        parameter.sub_(orthogonalize(ahead, group), alpha=group["lr"] * size)


def orthogonalize(matrix: torch.Tensor, settings: Mapping[str, Any]) -> torch.Tensor:
    """Roughly the nearest matrix with orthogonal rows or columns, in the matrix's own precision.

    settings: ns_coefficients, ns_steps and eps of torch.optim.Muon. Source: K. Jordan,
    kellerjordan.github.io/posts/muon (Newton-Schulz iteration).
    """
    a, b, c = settings["ns_coefficients"]
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=settings["eps"])
    for _ in range(settings["ns_steps"]):
        gram = x @ x.T
        x = a * x + torch.addmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.T if tall else x


def build_optimizers(model: nn.Module, optim: Optim, precision: Precision = "fp32") -> list[Any]:
    """The optimisers of a model's trainable parameters, each parameter in exactly one.

    precision: what Muon multiplies matrices in. The weights are always float32.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    matrices = _find_layer_matrices(model) if optim.name == "muon" else set()
    rest = [p for p in trainable if p not in matrices]
    optimizers: list[Any] = []
    if rest:
        optimizers.append(build_adamw(rest, optim, optim.weight_decay))
    if matrices:
        optimizers.append(
            (ExactMuon if precision == "fp32" else torch.optim.Muon)(
                [p for p in trainable if p in matrices],
                lr=optim.lr,
                momentum=optim.momentum,
                weight_decay=optim.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    return optimizers


def build_adamw(
    parameters: Iterable[nn.Parameter], optim: Optim, weight_decay: float
) -> torch.optim.AdamW:
    """AdamW with the rates of the settings."""
    betas = (optim.beta1, optim.beta2)
    return torch.optim.AdamW(parameters, lr=optim.lr, betas=betas, weight_decay=weight_decay)


def load_states(optimizers: list[Any], file: Path) -> None:
    """Restore the optimisers' states from a checkpoint, but keep the current settings.

    Raises CheckpointError, before anything is changed, unless the states fit these optimisers.
    """
    try:
        saved = torch.load(file, weights_only=True)
    except Exception as error:  # zip files and the restricted pickle raise many kinds
        raise CheckpointError(f"{file}: cannot be read ({str(error)[:200]})") from None
    own = [optimizer.state_dict() for optimizer in optimizers]
    try:
        layout, held = _describe_states(saved), [state["state"] for state in saved]
    except (TypeError, KeyError, AttributeError):
        raise CheckpointError(f"{file} does not hold the states of optimisers") from None
    if layout != _describe_states(own):
        raise CheckpointError(
            f"{file} was written with another optimiser, or version of torch: choose optim= as it "
            "was then"
        )
    if not all(map(_fits, optimizers, held)):
        raise CheckpointError(f"{file}: the optimiser's state belongs to another model")
    for optimizer, state, mine in zip(optimizers, held, own, strict=True):
        # A resumed run may have changed the settings.
        optimizer.load_state_dict({**mine, "state": state})


def _describe_states(states: list[dict[str, Any]]) -> list[list[Any]]:
    """What tells optimisers apart: the names of their settings and the numbers of their weights."""
    return [[(set(g), g["params"]) for g in state["param_groups"]] for state in states]


def _fits(optimizer: Any, state: Any) -> bool:
    """Whether the state of each weight that has one fits this optimiser in names and shapes."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    muon = isinstance(optimizer, torch.optim.Muon)
    names = {"momentum_buffer"} if muon else {"step", "exp_avg", "exp_avg_sq"}
    return isinstance(state, dict) and all(
        i in range(len(weights))
        and isinstance(held, dict)
        and held.keys() == names
        and all(
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.shape == (() if name == "step" else weights[i].shape)
            for name, value in held.items()
        )
        for i, held in state.items()
    )


def set_learning_rate(optimizers: list[Any], optim: Optim, lr: float) -> None:
    """Set the rate of the next steps: lr, or its share for what Muon leaves to AdamW."""
    for optimizer in optimizers:
        rest = optim.name == "muon" and isinstance(optimizer, torch.optim.AdamW)
        for group in optimizer.param_groups:
            group["lr"] = lr * optim.rest_lr_ratio if rest else lr


def _find_layer_matrices(model: nn.Module) -> set[nn.Parameter]:
    """Trainable matrices, without the embeddings and the head, which are tables of rows."""
    inner: Any = model
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    tables.add(inner.get_output_embeddings().weight)
    return {p for p in model.parameters() if p.requires_grad and p.ndim == 2} - tables
