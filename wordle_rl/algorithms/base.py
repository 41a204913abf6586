"""What the training step asks of an algorithm; the step itself knows none of them.

Axes: G groups, N rollouts of a group, S sequences, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Per-token quantities of some sequences, as arrays of one namespace. All are [S, T]."""

    logprobs: Any  # of the policy now, with gradient; 0 where not trained
    old_logprobs: Any  # the trainer's before the first update of this batch, no gradient
    ref_logprobs: Any  # the reference's, or None when the algorithm asks for none
    advantages: Any
    trained: Any  # 1 at sampled tokens, else 0


class Algorithm(Protocol):
    """Policies are improved by minimising the weighted sum of `loss` over trained tokens."""

    @property
    def updates(self) -> int:
        """Optimiser steps on one batch of rollouts."""
        ...

    @property
    def scale(self) -> str:
        """std divides advantages by their deviation, none leaves them."""
        ...

    @property
    def needs_reference(self) -> bool:
        """Whether `loss` reads ref_logprobs."""
        ...

    @property
    def player(self) -> str | None:
        """Name of the scripted player to imitate, or None when the policy itself plays."""
        ...

    @property
    def skips_equal_groups(self) -> bool:
        """Whether a group without spread gives exactly zero gradient and may be left out."""
        ...

    def check(self, num_generations: int) -> None:
        """Raise ValueError when this many rollouts per group cannot be learnt from."""
        ...

    def advantages(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Advantage of each rollout [G, N] from the summed rewards [G, N]."""
        ...

    def weights(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weight [S] of every trained token of a sequence, from the trained lengths [S] of all
        sequences of the step."""
        ...

    def loss(self, xp: Any, terms: Terms) -> tuple[Any, dict[str, Any]]:
        """Loss [S, T] before weighting, and per-token metrics [S, T] to be averaged.

        xp: array namespace (numpy, torch or mlx.core).
        """
        ...
