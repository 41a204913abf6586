"""Advantages, weights and losses are the published ones, in numpy and in torch."""

import numpy as np
import pytest

from tests.helpers.tiny import guessing_tokenizer, qwen, recipe_of, same, step_of
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.policy_gradient import clipped_surrogate, kl_k3
from wordle_rl.game.rules import PlayedTurn
from wordle_rl.training.step import train_step

# -- advantages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["std", "none"])
def test_a_group_of_one_is_refused(scale):  # row 10
    with pytest.raises(ValueError, match="num_generations must be 2 or more"):
        Grpo(scale=scale).check(1)
    with pytest.raises(ValueError, match="num_generations must be 2 or more"):
        Grpo(scale=scale).compare(np.zeros((4, 1)))
    Grpo(scale=scale).check(2)


# -- losses ---------------------------------------------------------------------------------------

# ratio, advantage, loss, whether the clip takes the gradient away; range 0.8..1.3, by hand
CLIP_CASES = [
    (1.0, 1.0, -1.0, False),
    (1.0, -1.0, 1.0, False),
    (1.25, 2.0, -2.5, False),  # within the range, beyond a symmetric one
    (1.5, 1.0, -1.3, True),  # more of what is already likelier: no more
    (1.5, -1.0, 1.5, False),  # less of what has become likelier: always
    (0.5, 1.0, -0.5, False),  # more of what has become less likely: always
    (0.5, -1.0, 0.8, True),  # less of what is already less likely: no more
    (0.75, -2.0, 1.6, True),  # beyond the lower edge, within a symmetric 0.3
    (0.9, -2.0, 1.8, False),
    (1.5, 0.0, 0.0, False),
]


@pytest.mark.parametrize(("ratio", "advantage", "expected", "is_clipped"), CLIP_CASES)
def test_the_clip_is_asymmetric_and_only_on_the_pessimistic_side(  # row 15
    ratio, advantage, expected, is_clipped, backend
):
    def loss(xp, log_ratio, advantage):
        return clipped_surrogate(xp, log_ratio, advantage, low=0.2, high=0.3)[0]

    value, slope = backend.value_and_slope(loss, np.log([[ratio]]), [[advantage]])
    assert value == pytest.approx(expected)
    assert slope.item() == pytest.approx(0.0 if is_clipped else -ratio * advantage)
    _, seen, clipped = clipped_surrogate(
        np, np.log([[ratio]]), np.array([[advantage]]), low=0.2, high=0.3
    )
    assert seen.item() == pytest.approx(ratio)
    assert bool(clipped.item()) == is_clipped


def test_the_kl_estimate_is_never_negative_and_zero_only_at_equality():  # row 14
    random = np.random.default_rng(0)
    policy, reference = -random.exponential(2.0, (2, 1000))
    assert (kl_k3(np, policy, reference) >= 0.0).all()
    assert (kl_k3(np, policy, policy) == 0.0).all()
    assert kl_k3(np, np.float64(-1.0), np.float64(-1.1)) > 0.0
    assert kl_k3(np, np.float64(-1.1), np.float64(-1.0)) > 0.0


# -- groups in a step -----------------------------------------------------------------------------


def test_a_group_whose_rewards_add_up_to_nothing_trains(backend):  # row 26
    policy = backend.policy_of(qwen(340), guessing_tokenizer())
    before = backend.weights_of(policy)
    seen: list[float] = []

    def reward(turn: PlayedTurn) -> float:  # +1, -1, +1, -1 for games, in the order of scoring
        if turn.state.turn:
            return 0.0
        seen.append(-1.0 if len(seen) % 2 else 1.0)
        return seen[-1]

    recipe = recipe_of(Grpo(beta=0.0), reward, num_generations=2)
    metrics = train_step(step_of(policy, recipe)).metrics
    assert sum(seen) == 0.0 and metrics["reward/mean"] == 0.0
    assert metrics["groups/zero_spread"] == 0.0 and metrics["grad_norm"] > 0.0
    assert not same(before, backend.weights_of(policy))
