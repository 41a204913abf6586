"""Metrics of a step's rewards."""

from wordle_rl.rewards.scoring import GameReward
from wordle_rl.training.metrics import reward_metrics


def test_the_spread_of_rewards_has_its_ends_and_its_share_below_0():
    rewards = [GameReward(turns=({"win": value},)) for value in (-1.5, -0.5, 0.0, 4.0)]
    found = reward_metrics(rewards)
    assert (found["reward/min"], found["reward/max"], found["reward/below_0"]) == (-1.5, 4.0, 0.5)
    assert (found["reward/mean"], found["reward/win"]) == (0.5, 0.5)
