"""Scores the rollouts of a step: rewards, penalties for long answers, and advantages.

Advantages are computed over the rollouts of all processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Advantages, Floats, StepOutcomes
from wordle_rl.game.rules import GameStatus
from wordle_rl.prompts.parser import ParseFailure
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.settings import Recipe, Step
from wordle_rl.rollouts.talk import Rollout, Scores
from wordle_rl.training.update import pad


def score_rollouts(step: Step, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Give each rollout of this process its reward and, if needed, its scores."""
    if step.recipe.algorithm.scores_rollouts:
        rollouts = _score_talks(step, rollouts)
    with step.policy.timers("reward"):
        return [replace(one, reward=_reward(step.recipe, one)) for one in rollouts]


def _reward(recipe: Recipe, rollout: Rollout) -> GameReward:
    reward = recipe.rewards.score(rollout.game)
    divergence = None
    if rollout.scores is not None and recipe.algorithm.needs_reference:
        divergence = np.zeros(len(rollout.answer_lengths))
        for talk, score in zip(rollout.talks, rollout.scores, strict=True):
            assert score.ref_logprobs is not None
            gap = score.old_logprobs.astype(float) - score.ref_logprobs
            np.add.at(divergence, talk.turns, gap)
    charges = recipe.algorithm.penalties(
        rollout.answer_lengths, recipe.sampling.max_tokens, divergence
    )
    for name, shares in charges.items():
        reward = reward.charged(name, shares)
    return reward


def _score_talks(step: Step, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollouts with the trainer's scores of their conversations."""
    policy, algorithm = step.policy, step.recipe.algorithm
    batch = pad([t for one in rollouts for t in one.talks], step.form.chat.tokenizer.pad_id)
    old = policy.score(batch)
    ref = policy.score(batch, reference=True) if algorithm.needs_reference else None
    values = policy.values(batch) if algorithm.needs_values else None
    rows = iter(range(len(batch.lengths)))

    def scores(row: int) -> Scores:
        old_row, *others = (
            None if of_all is None else of_all[row, : batch.lengths[row]]
            for of_all in (old, ref, values)
        )
        assert old_row is not None
        return Scores(old_logprobs=old_row, ref_logprobs=others[0], values=others[1])

    return [replace(one, scores=[scores(next(rows)) for _ in one.talks]) for one in rollouts]


def step_advantages(rollouts: Sequence[Rollout], recipe: Recipe) -> Advantages:
    """The algorithm's advantages for a step's rollouts, which come from all processes."""
    by_turn = recipe.rollout.credit == "turn"
    needs_values = recipe.algorithm.needs_values
    return recipe.algorithm.advantages(
        StepOutcomes(
            groups=np.array([rollout.group for rollout in rollouts]),
            returns=[_returns(rollout, recipe) for rollout in rollouts],
            won=np.array([rollout.game.status is GameStatus.WON for rollout in rollouts]),
            complete=[
                np.array([turn.reason != ParseFailure.TRUNCATED for turn in rollout.game.turns])
                for rollout in rollouts
            ],
            values=[_turn_values(rollout) for rollout in rollouts] if needs_values else None,
            by_turn=by_turn,
            discount=recipe.rollout.discount if by_turn else 1.0,
        )
    )


def _returns(rollout: Rollout, recipe: Recipe) -> Floats:
    """[K] reward from each turn on. With credit=game every turn has the whole game's reward."""
    game, reward = rollout.game, rollout.reward
    if recipe.rollout.credit == "turn":
        return np.array(recipe.rewards.to_go(game, reward, recipe.rollout.discount))
    return np.full(len(game.turns), reward.total)


def _turn_values(rollout: Rollout) -> Floats:
    """[K] the value head's prediction before each answer."""
    assert rollout.scores is not None
    values = np.zeros(len(rollout.game.turns))
    for talk, score in zip(rollout.talks, rollout.scores, strict=True):
        assert score.values is not None
        for turn, part in talk.answers.items():
            values[turn] = score.values[part.start]
    return values


def groups_without_spread(rollouts: Sequence[Rollout], advantages: Advantages) -> NDArray[np.int64]:
    """Numbers of the groups that teach nothing: every advantage at every turn is exactly 0."""
    groups = np.array([rollout.group for rollout in rollouts])
    return np.setdiff1d(groups, groups[advantages.teaches])


def share_of_idle_turns(rollouts: Sequence[Rollout], advantages: Advantages) -> float:
    """Share of the sets of one group at one turn in which every advantage is exactly 0."""
    teaches: dict[tuple[int, int], bool] = {}
    for rollout, values in zip(rollouts, advantages.per_turn, strict=True):
        for turn, value in enumerate(values.tolist()):
            key = rollout.group, turn
            teaches[key] = teaches.get(key, False) or value != 0.0
    return 1.0 - sum(teaches.values()) / max(len(teaches), 1)
