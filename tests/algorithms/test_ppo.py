"""PPO: estimates over turns."""

from dataclasses import replace

import numpy as np
import pytest

from tests.helpers.tiny import recipe_of
from wordle_rl.algorithms.base import StepOutcomes
from wordle_rl.algorithms.credit import turn_gae
from wordle_rl.algorithms.ppo import Ppo
from wordle_rl.game.rules import Game, Rules
from wordle_rl.rollouts.talk import Rollout, Talk
from wordle_rl.training.advantages import step_advantages

# -- estimates ------------------------------------------------------------------------------------


def slow_gae(rewards: list[float], values: list[float], discount: float, lam: float) -> list[float]:
    """Eq. 16 of arXiv 1506.02438 as the double sum that it is."""
    series = [*values, 0.0]
    deltas = [r + discount * series[k + 1] - series[k] for k, r in enumerate(rewards)]
    return [
        sum((discount * lam) ** (n - k) * deltas[n] for n in range(k, len(deltas)))
        for k in range(len(deltas))
    ]


@pytest.mark.parametrize(("discount", "lam"), [(1.0, 0.95), (0.5, 0.9), (0.5, 0.0), (0.0, 1.0)])
def test_the_estimate_of_a_turn_is_the_published_sum(discount, lam):
    rewards, values = [1.0, -0.5, 0.0, 3.0], [0.3, 0.8, -0.2, 1.1]
    returns = [
        sum(discount ** (j - k) * r for j, r in enumerate(rewards) if j >= k) for k in range(4)
    ]
    estimates = turn_gae(np.array(returns), np.array(values), discount=discount, lam=lam)
    assert estimates == pytest.approx(slow_gae(rewards, values, discount, lam))


def outcomes(returns: list[list[float]], values: list[list[float]]) -> StepOutcomes:
    return StepOutcomes(
        groups=np.arange(len(returns)),
        returns=[np.array(r) for r in returns],
        won=np.zeros(len(returns), bool),
        complete=[np.ones(len(r), bool) for r in returns],
        values=[np.array(v) for v in values],
        by_turn=True,
        discount=0.5,
    )


def test_targets_are_values_and_estimates_and_advantages_are_put_on_a_unit_scale():
    results = outcomes([[2.0, 2.0], [4.0], []], [[1.0, 0.5], [1.0], []])
    advantages = Ppo(scale="none", lam=0.8).advantages(results)
    assert [a.tolist() for a in advantages.per_turn] == [pytest.approx([0.85, 1.5]), [3.0], []]
    assert advantages.targets is not None
    assert [t.tolist() for t in advantages.targets] == [pytest.approx([1.85, 2.0]), [4.0], []]
    assert advantages.target_scale == pytest.approx(np.std([1.85, 2.0, 4.0]))
    numbers = np.concatenate(Ppo(lam=0.8).advantages(results).per_turn)
    assert numbers.mean() == pytest.approx(0.0) and numbers.std() == pytest.approx(1.0)
    assert np.argsort(numbers).tolist() == [0, 1, 2]


def test_a_turn_is_worth_what_it_was_before_its_first_drawn_token():
    talk, values = Talk(), [0.5, 0.25]
    scores = []
    game = Game("crane", frozenset({"crane", "chart"}), Rules())
    for turn, value in enumerate(values):
        game.play("chart", text="chart")
        talk.hear([1, 2], turn)  # the grammar forces the first token of each answer, and the last
        talk.answer([3, 4, 5], turn, choices=[np.array([3]), np.array([4, 9]), np.array([5])])
        scores += [0.0, 0.0, 0.0, value, 0.0]
    ppo = Ppo(scale="none", lam=0.8)
    recipe = recipe_of(ppo, lambda turn: 0.0, credit="turn", discount=0.5)
    rollout = Rollout(
        game=game,
        group=0,
        talks=[talk],
        reward=recipe.rewards.reward(game),
        scores=[{"old_values": np.array(scores, np.float32)}],
    )
    [estimates] = step_advantages([rollout], recipe).per_turn
    assert estimates == pytest.approx(slow_gae([0.0, 0.0], values, 0.5, 0.8))


def test_a_turn_whose_answer_was_forced_counts_as_a_part_of_the_turn_before():
    """The others have the advantages of a game in which they earn the forced turns' rewards."""
    talk, scores = Talk(), []
    game = Game("crane", frozenset({"crane", "chart"}), Rules())
    for turn, value in enumerate([0.5, None, None, 0.25, None]):
        game.play("chart", text="chart")
        talk.hear([1, 2], turn)
        talk.answer([3], turn, choices=[np.array([3] if value is None else [3, 4])])
        scores += [0.0, 0.0, value or 0.0]
    ppo = Ppo(scale="none", lam=1.0)
    rewards = iter([1.0, 2.0, -3.0, 4.0, 5.0])
    recipe = recipe_of(ppo, lambda turn: next(rewards), credit="turn", discount=0.5)
    rollout = Rollout(
        game=game,
        group=0,
        talks=[talk],
        reward=recipe.rewards.reward(game),
        scores=[{"old_values": np.array(scores, np.float32)}],
    )
    [estimates] = step_advantages([rollout], recipe).per_turn
    tail = 4.0 + 0.5 * 5.0
    assert estimates[3] == pytest.approx(tail - 0.25)
    assert estimates[0] == pytest.approx(1.0 + 0.5 * 2.0 - 0.25 * 3.0 + 0.125 * tail - 0.5)
    one_step = replace(recipe, algorithm=Ppo(scale="none", lam=0.0))
    [estimates] = step_advantages([rollout], one_step).per_turn
    assert estimates[0] == pytest.approx(1.0 + 0.5 * 2.0 - 0.25 * 3.0 + 0.125 * 0.25 - 0.5)
