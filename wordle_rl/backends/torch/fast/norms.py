"""Root-mean-square norms on CPU, computed in float32, with a backward pass in few operations."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm


def read_norm(norm: Any) -> tuple[torch.Tensor, float]:
    """The weight [H] that a norm multiplies with, and its epsilon."""
    if isinstance(norm, Gemma3RMSNorm):
        return 1.0 + norm.weight.float(), norm.eps
    return norm.weight, norm.variance_epsilon


class GemmaNorm(nn.Module):
    """Gemma 3's norm with its weight frozen. The model holds that weight minus 1."""

    weight: torch.Tensor

    def __init__(self, norm: Any) -> None:
        super().__init__()
        weight, self.variance_epsilon = read_norm(norm)
        self.register_buffer("weight", weight.detach(), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            return RmsNorm.apply(x, self.weight, self.variance_epsilon)
        return normalize(self, x)


def normalize(norm: Any, x: torch.Tensor) -> torch.Tensor:
    """The norm of x [..., H], without a gradient."""
    weight, eps = read_norm(norm)
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)


class RmsNorm(torch.autograd.Function):
    """The norm of x [..., H], times a weight [H] in the weight's own type."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        values = x.float()
        norm = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        values = values * scale
        ctx.save_for_backward(values, scale, weight)
        return (values.to(weight.dtype) * weight).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        [grad] = grads
        values, scale, weight = ctx.saved_tensors
        # Operations on mixed types are several times slower.
        dtype, delta, weight = weight.dtype, grad.float(), weight.float()
        products = delta * values
        # Of x: scale (w g - x_hat mean(w g x_hat)).
        dot = (products @ weight)[..., None]
        x_grad = (delta * weight).addcmul_(values, dot, value=-1.0 / grad.shape[-1]).mul_(scale)
        if not ctx.needs_input_grad[1]:
            return x_grad.to(grad.dtype), None, None
        return x_grad.to(grad.dtype), products.flatten(0, -2).sum(0).to(dtype), None
