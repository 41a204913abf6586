"""The loss of a micro-batch, and the sums from which an update's metrics are made.

Written once against an array namespace xp: numpy, torch or mlx.core.
"""

from __future__ import annotations

from typing import Any

from wordle_rl.algorithms.base import Algorithm, LossInputs, constant


def weigh_loss(
    xp: Any, algorithm: Algorithm, inputs: LossInputs, weights: Any
) -> tuple[Any, dict[str, Any]]:
    """The weighted sum of the algorithm's loss per token, and what it says of the tokens.

    weights: [S, T] share of each token in the step's loss. Metrics come as sums over the trained
    tokens, those in LARGEST as their largest value (see UpdateMetrics).
    """
    per_token, metrics = algorithm.loss(xp, inputs)
    logprobs = constant(xp, inputs.logprobs)
    sampler_gap = xp.abs(logprobs - inputs.sampler_logprobs)
    metrics |= {"sampler_gap": sampler_gap, "surprise": -logprobs}
    parts = {
        name: xp.sum(xp.where(inputs.trained, constant(xp, values), 0.0))
        for name, values in metrics.items()
    }
    parts["ratio_gap"] = xp.max(xp.abs(xp.exp(logprobs - inputs.old_logprobs) - 1))
    parts["largest_sampler_gap"] = xp.max(sampler_gap)
    return xp.sum(per_token * weights), parts
