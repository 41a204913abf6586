"""Loss bodies, written once against an array namespace xp: numpy, torch or mlx.core."""

from __future__ import annotations

from typing import Any


def clipped_surrogate(
    xp: Any, logprobs: Any, old_logprobs: Any, advantages: Any, *, low: float, high: float
) -> tuple[Any, Any, Any]:
    """Pessimistic clipped policy-gradient loss, per token.

    All arrays [S, T]; low and high: how far the ratio may fall below and rise above 1.
    Returns loss, ratio, and 1 where the clip took the gradient away.
    Source: PPO (arXiv 1707.06347), eq. 7; the asymmetric range is DAPO's (arXiv 2503.14476).
    """
    ratio = xp.exp(logprobs - old_logprobs)
    free = ratio * advantages
    clipped = xp.clip(ratio, 1.0 - low, 1.0 + high) * advantages
    return -xp.minimum(free, clipped), ratio, clipped < free


def k3(xp: Any, logprobs: Any, ref_logprobs: Any) -> Any:
    """KL divergence from the reference, per token [S, T]: exp(d) - d - 1 with d = ref - policy.

    Never negative; value and slope are 0 at equality; unbiased for samples of the policy.
    Source: J. Schulman, "Approximating KL divergence" (2020); arXiv 2402.03300, eq. 4.
    """
    gap = ref_logprobs - logprobs
    return xp.exp(gap) - gap - 1.0
