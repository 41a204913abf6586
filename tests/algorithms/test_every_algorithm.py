"""Every algorithm as it is shipped learns."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.helpers.configs import OPTIONS, composed
from tests.helpers.tiny import (
    WORDS,
    AlwaysGuesses,
    many_stops,
    policy_of,
    qwen,
    qwen_like_tokenizer,
    recipe_of,
    step_of,
)
from wordle_rl.algorithms.base import Algorithm
from wordle_rl.commands.build import resolve
from wordle_rl.game.players import RandomWord
from wordle_rl.game.rules import PlayedTurn, Rules
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rollouts.teacher import TeacherSettings
from wordle_rl.runs.instantiate import instantiate
from wordle_rl.training.step import StepResult, train_step

# distill is sft with other settings, see test_imitation.py; opd needs a teacher, see test_opd.py
NAMES = [name for name in OPTIONS["algorithm"] if name not in ("distill", "opd")]
LEARNERS = [name for name in NAMES if name != "sft"]


@cache
def build_algorithm(name: str) -> Algorithm:
    """The algorithm that `algorithm=<name>` builds."""
    config = resolve(composed(f"algorithm={name}"))
    budget = config["sampling"]["max_tokens"]
    return instantiate("algorithm", config["algorithm"], Algorithm, budget=budget)


def policy_for(algorithm: Algorithm, *stops: int, lr: float = 1e-2) -> Policy:
    stops = stops or many_stops(340)
    tokenizer = AlwaysGuesses(qwen_like_tokenizer(), extra_stop_ids=stops)
    policy = policy_of(qwen(340, factor=20.0 if len(stops) == 340 else 6.0), tokenizer, lr=lr)
    policy.keep_reference()
    if algorithm.needs.values:
        policy.machine.add_value_head()
    return policy


def steps(
    policy: Policy, algorithm: Algorithm, count: int, *, until: float = 2.0, **recipe: Any
) -> list[StepResult]:
    """Up to so many steps, fewer when that share of games is won."""

    def reward(turn: PlayedTurn) -> float:
        return float(turn.won) + 0.05 * turn.tokens

    teacher = TeacherSettings(player=RandomWord(WORDS)) if algorithm.imitates else None
    recipe = {"teacher": teacher, **recipe}
    setup = recipe_of(algorithm, recipe.pop("reward", reward), **recipe)
    results: list[StepResult] = []
    for step in range(count):
        results.append(train_step(step_of(policy, setup, step)))
        if win_rate(results) >= until:
            break
    return results


def win_rate(results: list[StepResult]) -> float:
    """The share of games won in the last three steps."""
    rates = [result.metrics["train/win_rate"] for result in results[-3:]]
    return float(np.mean(rates)) if len(rates) == 3 else 0.0


@pytest.mark.parametrize("name", LEARNERS)
def test_a_bandit_with_four_arms_is_won_in_95_of_100_games(name):  # row 23
    """One answer of one token, which AlwaysGuesses reads as one of four words."""
    algorithm = build_algorithm(name)
    policy = policy_for(algorithm, *range(340), lr=2e-2)
    results = steps(
        policy,
        algorithm,
        40,
        until=0.95,
        reward=lambda turn: float(turn.won),
        secrets=("crane",),
        groups=4,
        num_generations=4,
        rules=Rules(max_turns=1),
        sampling=Sampling(max_tokens=1),
    )
    assert results[0].metrics["train/win_rate"] < 0.6
    assert win_rate(results) >= 0.95
