"""The results of a step, as algorithms read them, from numbers written by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wordle_rl.algorithms.base import StepOutcomes


def outcomes_by_turn(
    to_go: Sequence[Sequence[float]], groups: Sequence[int], **fields: Any
) -> StepOutcomes:
    """Rollouts [R] with these rewards from each turn on [K], credited by turn and all lost."""
    returns = [np.array(rewards, float) for rewards in to_go]
    defaults: dict[str, Any] = {
        "groups": np.array(groups),
        "returns": returns,
        "won": np.zeros(len(returns), bool),
        "complete": [np.ones(len(rewards), bool) for rewards in returns],
        "by_turn": True,
        "discount": 0.5,
    }
    return StepOutcomes(**(defaults | fields))
