"""Credit: advantages of whole rollouts or of single turns, each against its own group.

With credit by game every turn of a rollout gets the same advantage, so good and bad guesses of one
game are not told apart; with credit by turn each is judged by what it and the later turns earned.
Axes: R rollouts of a step, K turns of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Floats, Outcomes


def game_advantages(outcomes: Outcomes, compare: Callable[[Floats], Floats]) -> list[Floats]:
    """[R] of [K]: what `compare` makes of the totals [1, N] of each group, at all its turns."""
    totals = outcomes.totals
    of_game = np.zeros(len(totals))
    for members in outcomes.members():
        of_game[members] = compare(totals[members][None])[0]
    return [
        np.full(len(returns), advantage)
        for returns, advantage in zip(outcomes.returns, of_game, strict=True)
    ]


def turn_advantages(
    to_go: Sequence[Sequence[float] | Floats],
    groups: Sequence[int] | NDArray[np.int64],
    *,
    scale: str,
) -> list[Floats]:
    """Advantage of each turn [K] of each of R rollouts, whose groups are given by number [R].

    to_go: reward from each turn on. The baseline is the mean of the other rollouts of the group
    that still played at that turn; for a rollout alone, the other groups' mean at that turn; for
    the only one of all, none, and its advantage is 0. Equal rewards give exact zeros.
    scale="std" divides by the deviation of all advantages of the step.
    Source: leave-one-out baselines as in RLOO (arXiv 2402.14740), applied to each turn.
    """
    advantages = [np.zeros(len(rewards)) for rewards in to_go]
    for turn in range(max(map(len, to_go))):
        playing = [i for i, rewards in enumerate(to_go) if len(rewards) > turn]
        playing_groups: dict[int, list[int]] = {}
        for i in playing:
            playing_groups.setdefault(int(groups[i]), []).append(i)
        total = sum(to_go[i][turn] for i in playing)
        for members in playing_groups.values():
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
