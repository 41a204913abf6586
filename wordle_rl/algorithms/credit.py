"""Credit: advantages of whole rollouts or of single turns, each against its own group.

With credit by game every turn of a rollout gets the same advantage, so good and bad guesses of one
game are not told apart; with credit by turn each is judged by what it and the later turns earned.
Axes: R rollouts of a step, K turns of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import (
    Floats,
    StepOutcomes,
)

Scale = Literal["std", "none"]


def game_advantages(outcomes: StepOutcomes, compare: Callable[[Floats], Floats]) -> list[Floats]:
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


def group_advantages(rewards: Floats, scale: Scale) -> Floats:
    """Advantage of each rollout against its own group: its reward less the group's mean.

    rewards: [G, N] summed reward per rollout, unitless.
    Returns [G, N]; all zeros, exactly, in a group whose rewards are equal.
    Nothing is added to the deviation, where TRL adds 1e-4. Such an epsilon keeps the rounding of
    sums from looking like spread, but here RewardSet rounds rewards to nine digits, so that equal
    ones are equal; all that an epsilon could still do is shrink differences that were meant.
    Raises ValueError when N < 2. Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2;
    scale="none" is Dr. GRPO (arXiv 2503.20783).
    """
    _check_group(rewards)
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    spread = np.ptp(rewards, axis=1, keepdims=True)
    centred = np.where(spread == 0.0, 0.0, centred)
    if scale == "none":
        return centred
    deviation = rewards.std(axis=1, keepdims=True, ddof=1)
    return centred / np.where(spread == 0.0, 1.0, deviation)


def leave_one_out(rewards: Floats) -> Floats:
    """Advantage of each rollout: its reward less the mean of the others in its group.

    rewards, result, errors: as group_advantages. Source: RLOO (arXiv 2402.14740), section 2.
    """
    _check_group(rewards)
    n = rewards.shape[1]
    others = (rewards.sum(axis=1, keepdims=True) - rewards) / (n - 1)
    spread = np.ptp(rewards, axis=1, keepdims=True)
    return np.where(spread == 0.0, 0.0, rewards - others)


def _check_group(rewards: Floats) -> None:
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(
            "rollout.num_generations must be 2 or more: a rollout is judged against its group"
        )


def turn_gae(returns: Floats, values: Floats, *, discount: float, lam: float) -> Floats:
    """Generalised advantage estimate [K] of each turn of a finished rollout.

    returns: [K] discounted reward from each turn on, so that a turn's own reward is its return less
    the discounted next one. values: [K] before each turn. Source: arXiv 1506.02438, eq. 16.
    """
    rewards = returns - discount * np.append(returns[1:], 0.0)
    errors = rewards + discount * np.append(values[1:], 0.0) - values
    estimates, later = np.zeros(len(errors)), 0.0
    for turn in range(len(errors))[::-1]:
        later = estimates[turn] = errors[turn] + discount * lam * later
    return estimates
