"""The loss of some rows of a batch on torch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Algorithm, LossInputs
from wordle_rl.backends.torch.token_outputs import TokenOutputs
from wordle_rl.policy.batch import Batch, FloatArray
from wordle_rl.policy.weighted_loss import weigh_loss


def compute_loss(
    algorithm: Algorithm, outputs: TokenOutputs, batch: Batch, rows: NDArray[np.int64]
) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of these rows, with its gradient, and the parts of UpdateMetrics."""
    logprobs = outputs.logprobs
    width = logprobs.shape[1]

    def to_tensor(values: FloatArray) -> torch.Tensor:
        return torch.from_numpy(values[rows, :width]).to(logprobs.device, torch.float32)

    def to_optional(values: FloatArray | None) -> torch.Tensor | None:
        return None if values is None else to_tensor(values)

    old_logprobs = to_optional(batch.old_logprobs)
    units = np.arange(len(batch.lengths)) if batch.units is None else batch.units
    inputs = LossInputs(
        logprobs=logprobs,
        old_logprobs=logprobs.detach() if old_logprobs is None else old_logprobs,
        sampler_logprobs=to_tensor(batch.sampler_logprobs),
        advantages=to_tensor(batch.advantages),
        trained=torch.from_numpy(batch.trained[rows, :width]).to(logprobs.device),
        units=torch.from_numpy(units[rows]).to(logprobs.device),
        ref_logprobs=to_optional(batch.ref_logprobs),
        entropy=outputs.entropy,
        values=outputs.values,
        old_values=to_optional(batch.old_values),
        targets=to_optional(batch.targets),
        target_scale=batch.target_scale,
    )
    loss, parts = weigh_loss(torch, algorithm, inputs, to_tensor(batch.weights))
    return loss, {name: value.item() for name, value in parts.items()}
