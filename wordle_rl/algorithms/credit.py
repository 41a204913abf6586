"""Credit: the advantage of whole rollouts or of single turns, each against its own group.

With credit by game, every turn of a rollout gets the same advantage, so good and bad guesses of one
game are not told apart. With credit by turn, a guess is judged by what it and the later turns
earned. Both compare rollouts by the algorithm's own baseline and scale.
Axes: R rollouts of a step, K turns of a rollout; G groups, N rollouts of a group.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from wordle_rl.algorithms.base import Array, StepOutcomes

Scale = Literal["std", "none"]
# Makes advantages [G, N] of rewards [G, N], each group against itself.
Compare = Callable[[Array], Array]
# Rewards are rounded to nine digits (wordle_rl.rewards.scoring). Less than half of the last one is
# what sums leave behind, and dividing by it would turn rounding into advantages of size 1.
_ROUNDING = 0.5e-9


def has_spread(values: Array) -> Array:
    """Whether the numbers of each row [..., N] differ by more than rounding: [..., 1]."""
    largest = np.abs(values).max(axis=-1, keepdims=True, initial=1.0)
    return np.ptp(values, axis=-1, keepdims=True) > _ROUNDING * largest


def deviation(values: Array) -> float:
    """Standard deviation of numbers [N]; exactly 0 where they differ by no more than rounding."""
    return float(values.std()) if values.size and has_spread(values).all() else 0.0


def game_advantages(outcomes: StepOutcomes, compare: Compare) -> list[Array]:
    """[R] of [K]: the advantage of each rollout's total reward, repeated at each of its turns."""
    return outcomes.spread(_within_groups(outcomes.totals, outcomes.groups, compare))


def turn_advantages(outcomes: StepOutcomes, compare: Compare) -> list[Array]:
    """[R] of [K]: the advantage of each turn's reward to go.

    A turn is compared with the same turn of the rollouts of its group that still play there. A
    rollout that is alone in its group at a turn has advantage 0 there: nothing shows whether its
    reward is much or little.
    """
    advantages = [np.zeros(len(returns)) for returns in outcomes.returns]
    for turn in range(max(map(len, advantages), default=0)):
        members = [i for i, values in enumerate(advantages) if len(values) > turn]
        rewards = np.array([outcomes.returns[i][turn] for i in members])
        at_turn = _within_groups(rewards, outcomes.groups[members], compare)
        for i, advantage in zip(members, at_turn, strict=True):
            advantages[i][turn] = advantage
    return advantages


def _within_groups(rewards: Array, groups: Array, compare: Compare) -> Array:
    """Advantages [R] of rewards [R], each within its group; 0 for the only one of a group."""
    advantages = np.zeros(len(rewards))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        if len(members) > 1:
            advantages[members] = compare(rewards[members][None])[0]
    return advantages


def group_advantages(rewards: Array, scale: Scale) -> Array:
    """Advantage [G, N] of each rollout against its own group: its reward less the group's mean.

    rewards: [G, N], of games or from one turn on. Exact zeros in a group whose rewards are equal.
    Nothing is added to the deviation, where TRL adds 1e-4: has_spread keeps rounding from looking
    like spread, and an epsilon would shrink real differences.
    Raises ValueError when N < 2. Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2;
    scale="none" is Dr. GRPO (arXiv 2503.20783).
    """
    check_group(rewards)
    spread = has_spread(rewards)
    differences = np.where(spread, rewards - rewards.mean(axis=1, keepdims=True), 0.0)
    if scale == "none":
        return differences
    return differences / np.where(spread, rewards.std(axis=1, keepdims=True, ddof=1), 1.0)


def check_group(rewards: Array) -> None:
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(
            "rollout.num_generations must be 2 or more: a rollout is judged against its group"
        )


def turn_gae(returns: Array, values: Array, *, discount: float, lam: float) -> Array:
    """Generalised advantage estimate [K] of each turn of a finished rollout.

    returns: [K] discounted sum of the rewards from each turn on. A turn's own reward is its return
    minus the discounted return of the next turn. values: [K] the value predicted before each turn.
    Source: arXiv 1506.02438, eq. 16.
    """
    rewards = returns - discount * np.append(returns[1:], 0.0)
    errors = rewards + discount * np.append(values[1:], 0.0) - values
    estimates, estimate = np.zeros(len(errors)), 0.0
    for turn in range(len(errors))[::-1]:
        estimate = estimates[turn] = errors[turn] + discount * lam * estimate
    return estimates
