"""Scores the rollouts of a step: rewards, penalties for long answers, and advantages.

A Sample carries a rollout and its reward from process to process. Advantages are computed over the
samples of all processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Advantages, AnswerLengths, Floats, StepOutcomes
from wordle_rl.game.rules import GameStatus
from wordle_rl.policy.batch import FloatArray
from wordle_rl.policy.engine import StopReason
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.base import Recipe, Step
from wordle_rl.rollouts.records import Rollout
from wordle_rl.training.sequences import TrainingSequence, build_sequences, find_answers, pad


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What the trainer computes for one sequence before its advantages.

    Each array is [T], and 0 where no token is trained.
    """

    old_logprobs: FloatArray  # the policy's log-probability of each trained token
    ref_logprobs: FloatArray | None = None  # the reference's log-probabilities
    values: FloatArray | None = None  # predictions of the value head


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One rollout with its reward."""

    rollout: Rollout
    reward: GameReward  # with the algorithm's penalties
    scores: list[Scores] | None  # one per sequence, if the algorithm needs them for advantages


def score_rollouts(step: Step, rollouts: Sequence[Rollout]) -> list[Sample]:
    """Give each rollout of this process its reward and, if needed, its scores."""
    scores: Sequence[list[Scores] | None] = [None] * len(rollouts)
    if step.recipe.algorithm.scores_rollouts:
        scores = _score_sequences(step, rollouts)
    with step.policy.timers("reward"):
        pairs = zip(rollouts, scores, strict=True)
        return [_reward_rollout(step.recipe, *pair) for pair in pairs]


def _reward_rollout(recipe: Recipe, rollout: Rollout, scores: list[Scores] | None) -> Sample:
    reward = recipe.rewards.score(rollout.game)
    divergence = None
    if scores is not None and recipe.algorithm.needs_reference:
        divergence = np.zeros(len(rollout.turns))
        for sequence, score in zip(build_sequences(rollout, 0), scores, strict=True):
            assert score.ref_logprobs is not None
            gap = score.old_logprobs.astype(float) - score.ref_logprobs
            np.add.at(divergence, sequence.turns, gap)
    answers = AnswerLengths(
        lengths=np.array([len(turn.completion.ids) for turn in rollout.turns], np.int64),
        max_tokens=recipe.sampling.max_tokens,
        divergence=divergence,
    )
    for name, shares in recipe.algorithm.penalties(answers).items():
        reward = reward.charged(name, shares)
    return Sample(rollout=rollout, reward=reward, scores=scores)


def _score_sequences(step: Step, rollouts: Sequence[Rollout]) -> list[list[Scores]]:
    """The trainer's scores of each rollout's sequences."""
    policy, algorithm = step.policy, step.recipe.algorithm
    every: list[TrainingSequence] = [
        s for i, rollout in enumerate(rollouts) for s in build_sequences(rollout, i)
    ]
    blank = [[0.0] * len(s.ids) for s in every]
    batch = pad(every, {"advantages": blank, "weights": blank}, step.form.chat.tokenizer.pad_id)
    old = policy.score(batch)
    ref = policy.score(batch, reference=True) if algorithm.needs_reference else None
    values = policy.values(batch) if algorithm.needs_values else None

    def row(of_all: FloatArray, i: int) -> FloatArray:
        return of_all[i, : batch.lengths[i]]

    scores: list[list[Scores]] = [[] for _ in rollouts]
    for i, sequence in enumerate(every):
        scores[sequence.rollout].append(
            Scores(
                old_logprobs=row(old, i),
                ref_logprobs=None if ref is None else row(ref, i),
                values=None if values is None else row(values, i),
            )
        )
    return scores


def step_advantages(samples: Sequence[Sample], recipe: Recipe) -> Advantages:
    """The algorithm's advantages for a step's samples, which come from all processes."""
    rollout = recipe.rollout
    by_turn = rollout.credit == "turn"
    return recipe.algorithm.advantages(
        StepOutcomes(
            groups=np.array([s.rollout.group for s in samples]),
            returns=[_returns(sample, recipe) for sample in samples],
            won=np.array([s.rollout.game.status is GameStatus.WON for s in samples]),
            complete=[
                np.array([t.completion.stop is StopReason.STOP_TOKEN for t in s.rollout.turns])
                for s in samples
            ],
            values=[_turn_values(s) for s in samples] if recipe.algorithm.needs_values else None,
            by_turn=by_turn,
            discount=rollout.discount if by_turn else 1.0,
        )
    )


def _returns(sample: Sample, recipe: Recipe) -> Floats:
    """[K] reward from each turn on. With credit=game every turn has the whole game's reward."""
    game, reward = sample.rollout.game, sample.reward
    if recipe.rollout.credit == "turn":
        return np.array(recipe.rewards.to_go(game, reward, recipe.rollout.discount))
    return np.full(len(game.turns), reward.total)


def _turn_values(sample: Sample) -> Floats:
    """[K] the value head's prediction before each answer."""
    assert sample.scores is not None
    values = np.zeros(len(sample.rollout.turns))
    for sequence, score in zip(build_sequences(sample.rollout, 0), sample.scores, strict=True):
        assert score.values is not None
        for number, place in find_answers(sample.rollout, sequence):
            values[number] = score.values[place]
    return values


def groups_without_spread(samples: Sequence[Sample], advantages: Advantages) -> NDArray[np.int64]:
    """Numbers of the groups that teach nothing: every advantage at every turn is exactly 0."""
    groups = np.array([sample.rollout.group for sample in samples])
    return np.setdiff1d(groups, groups[advantages.teaches])


def share_of_idle_turns(samples: Sequence[Sample], advantages: Advantages) -> float:
    """Share of the sets of one group at one turn in which every advantage is exactly 0."""
    teaches: dict[tuple[int, int], bool] = {}
    for sample, values in zip(samples, advantages.per_turn, strict=True):
        for turn, value in enumerate(values.tolist()):
            key = sample.rollout.group, turn
            teaches[key] = teaches.get(key, False) or value != 0.0
    return 1.0 - sum(teaches.values()) / max(len(teaches), 1)
