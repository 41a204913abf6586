"""Loss bodies: clipped surrogate, KL (k3), values and preferences.

Written once against an array namespace xp: numpy, torch or mlx.core. All arrays are [S, T].
"""

from __future__ import annotations

from typing import Any


def clipped_surrogate(
    xp: Any, log_ratio: Any, advantages: Any, *, low: float, high: float
) -> tuple[Any, Any, Any]:
    """Pessimistic clipped policy-gradient loss, per token.

    log_ratio: log-probability now minus the old policy's. low, high: how far the ratio may fall
    below and rise above 1.
    Returns loss, ratio, and 1 where the clip removed the gradient.
    Source: PPO (arXiv 1707.06347), eq. 7; the asymmetric range is DAPO's (arXiv 2503.14476).
    """
    ratio = xp.exp(log_ratio)
    free = ratio * advantages
    clipped = xp.clip(ratio, 1.0 - low, 1.0 + high) * advantages
    return -xp.minimum(free, clipped), ratio, clipped < free


def kl_k3(xp: Any, logprobs: Any, ref_logprobs: Any) -> Any:
    """KL divergence from the reference, per token: exp(d) - d - 1 with d = ref - policy.

    Never negative. Value and slope are 0 at equality. Unbiased for samples of the policy.
    Source: J. Schulman, "Approximating KL divergence" (2020); arXiv 2402.03300, eq. 4.
    """
    gap = ref_logprobs - logprobs
    return xp.exp(gap) - gap - 1.0


def clipped_value_loss(
    xp: Any, values: Any, old_values: Any, targets: Any, *, clip: float, scale: float
) -> Any:
    """Half the squared error of a value, or of the value clipped near the old one if that is worse.

    clip: how far a value may move from the old one, in units of scale; 0 for any distance.
    Source: PPO's reference code (github.com/openai/baselines, ppo2).
    """
    errors = ((values - targets) / scale) ** 2
    if clip > 0.0:
        near = old_values + xp.clip(values - old_values, -clip * scale, clip * scale)
        errors = xp.maximum(errors, ((near - targets) / scale) ** 2)
    return 0.5 * errors


def log_sigmoid(xp: Any, x: Any) -> Any:
    """Logarithm of the logistic function, without overflow."""
    return -xp.logaddexp(xp.zeros_like(x), -x)


def constant(xp: Any, x: Any) -> Any:
    """The same numbers without their gradient."""
    if hasattr(x, "detach"):
        return x.detach()
    stop = getattr(xp, "stop_gradient", None)
    return x if stop is None else stop(x)
