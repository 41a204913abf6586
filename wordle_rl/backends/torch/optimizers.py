"""torch's optimisers for the settings in optim. A policy steps all of them together."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from wordle_rl.backends.loading import read_weights
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim, muon_size
from wordle_rl.runs.checkpoints import CheckpointError

# What an optimiser keeps of each weight, in the weight's shape unless it is a number.
_MUON, _ADAMW = ("momentum_buffer",), ("step", "exp_avg", "exp_avg_sq")
_SCALAR = {"step": torch.Size()}


class ExactMuon(torch.optim.Muon):
    """torch's Muon with products in float32, for runs in that precision.

    It always uses Nesterov momentum and the step size of match_rms_adamw. It keeps the same state
    as torch's Muon, so either one can load the other's checkpoint.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step: momentum, orthogonal direction, weight decay. closure: called before."""
        if closure is not None:
            closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if (gradient := weight.grad) is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(gradient)
                average = state["momentum_buffer"].lerp_(gradient, 1.0 - group["momentum"])
                lookahead = gradient.lerp(average, group["momentum"])  # Nesterov momentum
                weight.mul_(1.0 - group["lr"] * group["weight_decay"])
                step = group["lr"] * muon_size(weight.shape)
                weight.sub_(orthogonalize(lookahead, group), alpha=step)


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

    precision: what Muon multiplies matrices in. The weights are always float32. The entry `share`
    of their groups is the share of the learning rate that these learn with.
    """
    inner: Any = model
    parameters = [p for p in model.parameters() if p.requires_grad]
    matrices = set()
    if optim.name == "muon":  # embeddings and the head are tables of rows, and no matrices
        tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
        tables.add(inner.get_output_embeddings().weight)
        matrices = {p for p in parameters if p.ndim == 2} - tables
    optimizers: list[Any] = []
    if rest := [p for p in parameters if p not in matrices]:
        decay = optim.weight_decay
        optimizers.append(build_adamw(rest, optim, weight_decay=decay, share=optim.rest_share))
    if matrices:
        kind: Any = torch.optim.Muon if precision == "bf16" else ExactMuon
        group = {"params": [p for p in parameters if p in matrices], "share": 1.0}
        optimizers.append(
            kind(
                [group],
                lr=optim.lr,
                momentum=optim.momentum,
                weight_decay=optim.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    return optimizers


def build_adamw(
    parameters: list[nn.Parameter], optim: Optim, *, weight_decay: float, share: float = 1.0
) -> torch.optim.AdamW:
    """AdamW with the rates of the settings. share: of the learning rate."""
    group = {"params": parameters, "share": share}
    betas = (optim.beta1, optim.beta2)
    return torch.optim.AdamW([group], lr=optim.lr, betas=betas, weight_decay=weight_decay)


def save_states(optimizers: list[Any], file: Path) -> None:
    """Write the optimisers' states: for each weight that was trained, what its optimiser keeps."""
    tensors = {
        f"{number}.{weight}.{name}": value.contiguous()
        for number, optimizer in enumerate(optimizers)
        for weight, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }
    save_file(tensors, file)


def load_states(optimizers: list[Any], file: Path) -> None:
    """Restore what save_states() wrote, but keep the current settings.

    Raises CheckpointError, before anything is changed, unless the states fit these optimisers.
    """
    tensors = read_weights(file)
    expected: dict[str, torch.Size] = {}
    for number, optimizer in enumerate(optimizers):
        names = _MUON if isinstance(optimizer, torch.optim.Muon) else _ADAMW
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        for i, weight in enumerate(weights):
            if any(f"{number}.{i}.{name}" in tensors for name in names):  # it was trained
                shapes = {name: weight.shape for name in names} | _SCALAR
                expected |= {f"{number}.{i}.{name}": shapes[name] for name in names}
    if {name: value.shape for name, value in tensors.items()} != expected:
        raise CheckpointError(
            f"{file} was written with another optimiser or model: choose optim= as it was then"
        )
    for number, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, value in tensors.items():
            owner, i, key = name.split(".")
            if int(owner) == number:
                state[int(i)][key] = value
        # A resumed run may have changed the settings.
        optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(state)})
