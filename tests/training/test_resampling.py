"""Groups that teach nothing: counted, skipped, and replaced where the algorithm says so."""

from typing import Any

import numpy as np

from tests.helpers.tiny import guessing_tokenizer, policy_of, qwen, recipe_of, step_of
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.game.rules import PlayedTurn
from wordle_rl.policy.policy import Policy
from wordle_rl.training.step import StepResult, train_step


def small_policy() -> Policy:
    return policy_of(qwen(340), guessing_tokenizer())


def played_step(algorithm: Any, reward: Any, number: int = 0, **recipe: Any) -> StepResult:
    policy = small_policy()
    setup = recipe_of(algorithm, reward, **{"groups": 8, "num_generations": 2, **recipe})
    return train_step(step_of(policy, setup, number))


def often_equal(turn: PlayedTurn) -> float:
    """Of two games, equal about half of the time."""
    return float(turn.tokens % 2) if turn.state.turn == 0 else 0.0


def no_spread(result: StepResult) -> int:
    totals = np.array([reward.total for reward in result.rewards]).reshape(8, 2)
    return int((np.ptp(totals, axis=1) == 0.0).sum())


def test_groups_without_spread_are_replaced_until_none_is_left():
    grpo, dapo = played_step(Grpo(beta=0.0), often_equal), played_step(Dapo(), often_equal)
    assert no_spread(grpo) > 0, "there must be something to replace"
    assert no_spread(dapo) == 0
    metrics = dapo.metrics
    num_new = metrics["groups/resampled"]
    assert num_new >= no_spread(grpo)  # whoever replaces may need replacing
    assert metrics["groups/played"] == 8 + num_new
    assert metrics["groups/zero_spread"] == num_new / (8 + num_new)
    assert metrics["groups/skipped"] == 0.0
    assert metrics["train/extra_games"] == 2 * num_new
    assert metrics["train/games"] == 2 * (8 + num_new)
    # Groups with spread are those that were there; the new ones have their places.
    count = 0
    for rollout, twin in zip(grpo.rollouts, dapo.rollouts, strict=True):
        assert rollout.group == twin.group
        count += rollout.talks == twin.talks
    assert count == 2 * (8 - no_spread(grpo))


def test_replacing_is_a_pure_function_of_seed_and_step():
    first, repeat, next_step = (played_step(Dapo(), often_equal, number) for number in (3, 3, 4))
    games = [[r.game.secret for r in result.rollouts] for result in (first, repeat)]
    assert games[0] == games[1]
    assert [r.talks for r in first.rollouts] == [r.talks for r in repeat.rollouts]
    assert [r.talks for r in first.rollouts] != [r.talks for r in next_step.rollouts]
