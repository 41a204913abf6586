"""Metrics of a step's rewards."""

from wordle_rl.rewards.scoring import GameReward
from wordle_rl.training.metrics import reward_metrics


def test_the_spread_of_rewards_has_its_ends_and_its_share_below_0():
    rewards = [GameReward(turns=({"win": value},)) for value in (-1.5, -0.5, 0.0, 4.0)]
    stats = reward_metrics(rewards)
    assert (stats["reward/min"], stats["reward/max"], stats["reward/below_0"]) == (-1.5, 4.0, 0.5)
    assert (stats["reward/mean"], stats["reward/win"]) == (0.5, 0.5)
