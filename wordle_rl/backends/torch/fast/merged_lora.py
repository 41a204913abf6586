"""A LoRA model on CPU as one plain model whose matrices hold base and adapter in one sum.

It plays, scores and learns as fast as a model without an adapter. The sums are frozen: no weight
gradient is computed for them, and the gradient goes to the adapter's factors A and B. Every update
changes these and so needs new sums. They take as much memory as the adapted matrices of the base.
In bfloat16 a sum loses what is below half of its last place, about as much as activations lose.
"""

import copy
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

from wordle_rl.backends.torch.fast.norms import GemmaNorm

_GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # they multiply the same


class MergedLinear(nn.Linear):
    """base + scale * B A as one matrix, for a linear layer that peft adapted."""

    weight: nn.Parameter  # [out, in] of the base's type
    base: torch.Tensor  # [out, in]
    down: nn.Parameter  # A [rank, in], shared with the adapter
    up: nn.Parameter  # B [out, rank], shared with the adapter

    def __init__(self, layer: Any, adapter: str) -> None:
        """layer: peft's, of which nothing is copied."""
        nn.Module.__init__(self)
        inner: nn.Linear = layer.get_base_layer()
        self.in_features, self.out_features = inner.in_features, inner.out_features
        self.weight = nn.Parameter(torch.empty_like(inner.weight), requires_grad=False)
        self.bias = inner.bias
        # Not registered as weights of this layer: they are the adapted model's.
        self.__dict__["base"] = inner.weight
        self.__dict__["down"] = layer.lora_A[adapter].weight
        self.__dict__["up"] = layer.lora_B[adapter].weight
        self.scale = float(layer.scaling[adapter])
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute the sum again, after the adapter changed."""
        total = torch.addmm(self.base.float(), self.up.float(), self.down.float(), alpha=self.scale)
        self.weight.copy_(total)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # nn.Linear names it so
        return multiply(input, self)


def merge_adapter(model: Any, adapter: str = "default") -> Any:
    """A copy of a peft model with merged matrices. None if it holds more than plain LoRA layers.

    The copy shares all parameters but the sums with the model.
    """
    from peft.tuners.lora import Linear
    from peft.tuners.tuners_utils import BaseTunerLayer

    config, base = model.peft_config[adapter], model.get_base_model()
    lora_layers: dict[str, Any] = {
        name: layer for name, layer in base.named_modules() if isinstance(layer, BaseTunerLayer)
    }
    if config.peft_type != "LORA" or (
        config.use_dora
        or config.lora_bias
        or config.fan_in_fan_out
        or config.modules_to_save
        or config.bias != "none"
        or config.trainable_token_indices
        or config.layer_replication
    ):
        return None
    for layer in lora_layers.values():
        plain = type(layer) is Linear and type(layer.get_base_layer()) is nn.Linear
        if not plain or adapter not in layer.lora_A:
            return None
    memo = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    network = copy.deepcopy(base, memo)
    for name, layer in lora_layers.items():
        network.set_submodule(name, MergedLinear(layer, adapter))
    for name, module in list(network.named_modules()):
        if type(module) is Gemma3RMSNorm:
            network.set_submodule(name, GemmaNorm(module))
        for names in _GROUPS:
            layers = [getattr(module, name, None) for name in names]
            if all(isinstance(layer, MergedLinear) for layer in layers):
                _lay_together(layers)
    return network.eval()


def _lay_together(layers: list[Any]) -> None:
    """Make the sums of some layers rows of one matrix, so that join() need not copy them."""
    rows = join([layer.weight for layer in layers]).split([len(layer.weight) for layer in layers])
    for layer, part in zip(layers, rows, strict=True):
        layer.weight.data = part


def refresh_sums(merged: nn.Module) -> None:
    """Compute all sums again, after the adapter changed."""
    for layer in merged.modules():
        if isinstance(layer, MergedLinear):
            layer.refresh()


def multiply(x: torch.Tensor, *layers: nn.Linear) -> torch.Tensor:
    """x [..., in] times the matrices of linear layers, side by side [..., all outs].

    Either all layers have biases, or none has.
    """
    weight = join([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else join([layer.bias for layer in layers])
    lora_layers = [layer for layer in layers if isinstance(layer, MergedLinear)]
    if not lora_layers or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    factors = [factor for layer in lora_layers for factor in (layer.down, layer.up)]
    product: Any = _Multiply.apply(x, weight, bias, layers, *factors)
    return product


def join(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Tensors stacked by rows. Frozen ones that already lie so in memory are not copied."""

    def locate(tensor: torch.Tensor) -> tuple[int, int, bool]:
        memory = tensor.untyped_storage().data_ptr()
        return memory, int(tensor.storage_offset()), tensor.requires_grad

    first = tensors[0]
    if len(tensors) == 1:
        return first
    memory, start, trained = locate(first)
    starts = accumulate((tensor.numel() for tensor in tensors[:-1]), initial=start)
    if trained or any(
        locate(t) != (memory, offset, False) for t, offset in zip(tensors, starts, strict=True)
    ):
        return torch.cat(tensors)
    return first.as_strided((sum(map(len, tensors)), *first.shape[1:]), first.stride())


class _Multiply(torch.autograd.Function):
    """A product with frozen sums, whose gradient goes to x and to the factors in the sums."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layers: tuple[nn.Linear, ...],
        *factors: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight, *factors)
        ctx.layers = [(la.out_features, getattr(la, "scale", None)) for la in layers]
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, weight, *factors = ctx.saved_tensors
        grad, rows = grads[0].flatten(0, -2), x.flatten(0, -2)
        x_grad = (grad @ weight).view(x.shape) if ctx.needs_input_grad[0] else None
        parts = zip(grad.split([width for width, _ in ctx.layers], dim=1), ctx.layers, strict=True)
        outputs = [(part, scale) for part, (_, scale) in parts if scale is not None]
        return x_grad, None, None, None, *_factor_gradients(rows, outputs, factors)


def _factor_gradients(
    rows: torch.Tensor, outputs: list[tuple[torch.Tensor, float]], factors: Sequence[torch.Tensor]
) -> Iterator[torch.Tensor]:
    """The gradients of each adapted layer's two factors, in their order.

    rows: [M, in] what all layers read. outputs: for each the gradient [M, out] of what it gives,
    and the scale of its factors.
    """
    downs, ups = factors[::2], factors[1::2]
    ranks = [len(down) for down in downs]
    narrow_rows = (rows @ join([down.to(rows.dtype) for down in downs]).T).split(ranks, dim=1)
    narrow_grads = [
        part @ (up * scale).to(rows.dtype) for (part, scale), up in zip(outputs, ups, strict=True)
    ]
    down_grads = (torch.cat(narrow_grads, dim=1).T @ rows).split(ranks)
    for i, (part, scale) in enumerate(outputs):
        yield down_grads[i].to(downs[i].dtype)
        yield (part.T @ narrow_rows[i]).to(ups[i].dtype).mul_(scale)
