"""Root-mean-square norms on CPU, computed in float32, with a backward pass in few operations."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class GemmaNorm(nn.Module):
    """Gemma 3's norm with its weight frozen. The model holds that weight minus 1."""

    weight: torch.Tensor

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.register_buffer("weight", 1.0 + norm.weight.detach().float(), persistent=False)
        self.eps: float = norm.eps

    def forward(self, x: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            return RmsNorm.apply(x, self.weight, self.eps)
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps).to(x.dtype)


class RmsNorm(torch.autograd.Function):
    """The norm of x [..., H], times a weight [H] in the weight's own type."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        exact = x.float()
        norm = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        exact = exact * scale
        ctx.save_for_backward(exact, scale, weight)
        return (exact.to(weight.dtype) * weight).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        [grad] = grads
        exact, scale, weight = ctx.saved_tensors
        # Operations on mixed types are several times slower.
        outer, weight = grad.float(), weight.float()
        products = outer * exact
        along = (products @ weight)[..., None]
        inner = (outer * weight).addcmul_(exact, along, value=-1.0 / grad.shape[-1]).mul_(scale)
        if not ctx.needs_input_grad[1]:
            return inner.to(grad.dtype), None, None
        return inner.to(grad.dtype), products.flatten(0, -2).sum(0).to(grad.dtype), None
