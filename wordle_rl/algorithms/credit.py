"""Credit by turn: each turn is judged by what it and the later turns earned, against its own group.

With credit by game every turn of a game gets the same advantage, so good and bad guesses of one
game are not told apart. Axes: G groups, N rollouts of a group, K turns of a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def turn_advantages(
    to_go: Sequence[Sequence[float]], *, num_generations: int, scale: str
) -> list[NDArray[np.float64]]:
    """Advantage of each turn [K] of each of the G * N rollouts, which lie group by group.

    to_go: reward from each turn on. The baseline is the mean of the other rollouts of the group
    that still played at that turn; for a rollout alone, the other groups' mean at that turn; for
    the only one of all, none, and its advantage is 0. Equal rewards give exact zeros.
    scale="std" divides by the deviation of all advantages of the step.
    Source: leave-one-out baselines as in RLOO (arXiv 2402.14740), applied to each turn.
    """
    advantages = [np.zeros(len(rewards)) for rewards in to_go]
    for turn in range(max(map(len, to_go))):
        playing = [i for i, rewards in enumerate(to_go) if len(rewards) > turn]
        groups: dict[int, list[int]] = {}
        for i in playing:
            groups.setdefault(i // num_generations, []).append(i)
        total = sum(to_go[i][turn] for i in playing)
        for members in groups.values():
            rewards = np.array([to_go[i][turn] for i in members])
            for i, reward in zip(members, rewards, strict=True):
                if len(members) > 1:
                    if np.ptp(rewards) > 0.0:
                        others = (rewards.sum() - reward) / (len(members) - 1)
                        advantages[i][turn] = reward - others
                elif len(playing) > 1:
                    advantages[i][turn] = reward - (total - reward) / (len(playing) - 1)
    deviation = float(np.concatenate(advantages).std())
    if scale == "std" and deviation > 0.0:
        advantages = [values / deviation for values in advantages]
    return advantages
