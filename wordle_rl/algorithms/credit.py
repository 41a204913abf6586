"""Credit: the advantage of whole rollouts or of single turns, each against its own group.

With credit by game, every turn of a rollout gets the same advantage, so good and bad guesses of one
game are not told apart. With credit by turn, a guess is judged by what it and the later turns
earned. Axes: R rollouts of a step, K turns of a rollout; G groups, N rollouts of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Floats, StepOutcomes

Scale = Literal["std", "none"]
# Rewards are rounded to nine digits (wordle_rl.rewards.scoring). Less than half of the last one is
# what sums leave behind, and dividing by it would turn rounding into advantages of size 1.
_ROUNDING = 0.5e-9


def has_spread(values: Floats) -> NDArray[np.bool_]:
    """Whether the numbers of each row [..., N] differ by more than rounding: [..., 1]."""
    largest = np.abs(values).max(axis=-1, keepdims=True, initial=1.0)
    return np.ptp(values, axis=-1, keepdims=True) > _ROUNDING * largest


def deviation(values: Floats) -> float:
    """Standard deviation of numbers [N]; exactly 0 where they differ by no more than rounding."""
    return float(values.std()) if values.size and has_spread(values).all() else 0.0


def game_advantages(outcomes: StepOutcomes, compare: Callable[[Floats], Floats]) -> list[Floats]:
    """[R] of [K]: the advantage of each rollout, repeated at each of its turns.

    compare: makes advantages [1, N] of the total rewards [1, N] of one group.
    """
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
    """[R] of [K]: the advantage of each turn, its reward to go less a leave-one-out baseline.

    to_go: [R] of [K] reward from each turn on. groups: [R] number of each rollout's group.
    The baseline is the mean of the other rollouts of the group that still play at that turn. A
    rollout that is alone in its group there is compared with all other groups. The only rollout of
    all has advantage 0. Equal rewards give exact zeros.
    scale="std" divides by the deviation of all advantages of the step.
    Source: leave-one-out baselines as in RLOO (arXiv 2402.14740), applied to each turn.
    """
    advantages = [np.zeros(len(rewards)) for rewards in to_go]
    for turn in range(max(map(len, to_go))):
        playing = [i for i, rewards in enumerate(to_go) if len(rewards) > turn]
        rewards = np.array([to_go[i][turn] for i in playing])
        at_turn = _against_group(rewards, np.array([groups[i] for i in playing]))
        for i, advantage in zip(playing, at_turn, strict=True):
            advantages[i][turn] = advantage
    if scale == "std" and (unit := deviation(np.concatenate(advantages))):
        advantages = [values / unit for values in advantages]
    return advantages


def _against_group(rewards: Floats, groups: NDArray[np.int64]) -> Floats:
    """Advantages [N] of the rollouts that play at one turn, from rewards and groups [N]."""
    advantages = np.zeros(len(rewards))
    total = sum(rewards)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        compared = rewards if len(members) == 1 else rewards[members]
        if len(compared) == 1 or not has_spread(compared).all():
            continue
        all_of_them = total if len(members) == 1 else compared.sum()
        others = (all_of_them - rewards[members]) / (len(compared) - 1)
        advantages[members] = rewards[members] - others
    return advantages


def group_advantages(rewards: Floats, scale: Scale) -> Floats:
    """Advantage of each rollout against its own group: its reward less the group's mean.

    rewards: [G, N] summed reward per rollout, unitless.
    Returns [G, N]; exact zeros in a group whose rewards are equal.
    Nothing is added to the deviation, where TRL adds 1e-4. Such an epsilon keeps rounding from
    looking like spread, which has_spread does here. It would also shrink real differences.
    Raises ValueError when N < 2. Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2;
    scale="none" is Dr. GRPO (arXiv 2503.20783).
    """
    check_group(rewards)
    spread = has_spread(rewards)
    centred = np.where(spread, rewards - rewards.mean(axis=1, keepdims=True), 0.0)
    if scale == "none":
        return centred
    return centred / np.where(spread, rewards.std(axis=1, keepdims=True, ddof=1), 1.0)


def check_group(rewards: Floats) -> None:
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(
            "rollout.num_generations must be 2 or more: a rollout is judged against its group"
        )


def turn_gae(returns: Floats, values: Floats, *, discount: float, lam: float) -> Floats:
    """Generalised advantage estimate [K] of each turn of a finished rollout.

    returns: [K] discounted sum of the rewards from each turn on. A turn's own reward is its return
    minus the discounted return of the next turn. values: [K] the value predicted before each turn.
    Source: arXiv 1506.02438, eq. 16.
    """
    rewards = returns - discount * np.append(returns[1:], 0.0)
    errors = rewards + discount * np.append(values[1:], 0.0) - values
    estimates, later = np.zeros(len(errors)), 0.0
    for turn in range(len(errors))[::-1]:
        later = estimates[turn] = errors[turn] + discount * lam * later
    return estimates
