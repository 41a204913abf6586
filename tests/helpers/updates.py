"""A batch of three conversations, and updates of a policy on it or on a bandit."""

from typing import Any

import numpy as np

from tests.helpers.tiny import batch_of, step_of
from wordle_rl.algorithms.base import Advantages
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.policy import LARGEST
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.runs.processes import ALONE
from wordle_rl.training.update import run_updates

# Of unequal length; 1 marks sampled tokens, and two rows have two answers.
ROWS = [
    ([3, 9, 4, 11, 12, 5, 6, 20, 21, 22], [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]),
    ([3, 50], [0, 1]),
    ([3, 9, 30, 31, 7, 8, 40], [0, 0, 1, 1, 0, 0, 1]),
]
PLAIN = Grpo(beta=0.0)


def games(advantages: tuple[float, ...] = (0.7, -1.3, 0.4)) -> Batch:
    return batch_of(ROWS, advantages)


def whole(epoch: int) -> list[Any]:
    """All rows of games() in one update, with equal weights for all tokens."""
    tokens = sum(sum(marks) for _, marks in ROWS)
    return [(np.arange(len(ROWS)), np.full(len(ROWS), 1.0 / tokens))]


def one_row(ids: list[int], marks: list[int]) -> Batch:
    return batch_of([(ids, marks)], [1.0])


def trained(policy: Any, updates: int = 3) -> Any:
    """The policy, after some updates on games()."""
    for _ in range(updates):
        assert policy.update(games(), PLAIN)["update/skipped"] == 0.0
    return policy


def batch_of_games(rollouts: list[Rollout], recipe: Recipe, chat: Chat) -> Batch:
    """What a step would train on in one update, each turn with the advantage 1."""
    batches: list[Batch] = []

    class Policy:
        processes = ALONE

        def update(self, batch: Batch, algorithm: Any) -> dict[str, float]:
            batches.append(batch)
            names = (f"policy/{name}" for name in (*LARGEST, "sampler_gap"))
            return dict.fromkeys((*names, "update/skipped", "update/halved"), 0.0)

    advantages = [np.ones(len(rollout.game.turns)) for rollout in rollouts]
    run_updates(step_of(Policy(), recipe, chat=chat), rollouts, Advantages(per_turn=advantages))
    [batch] = batches
    return batch


def play_bandit(policy: Any, step: int) -> Batch | None:
    """16 answers of one token; even ids are the arm that pays. None when all pay alike."""
    engine = policy.engine()
    numbers = Draws(seed=1, step=step).uniforms(np.arange(16), 0, 1)
    completions = engine.complete([[7, 9]] * 16, Sampling(max_tokens=1), numbers)
    rewards = np.array([[1.0 - c.ids[0] % 2 for c in completions]])
    advantages = PLAIN.compare(rewards)[0]
    if not advantages.any():
        return None
    rows = [([7, 9, *c.ids], [0, 0, 1]) for c in completions]
    return batch_of(rows, advantages.tolist(), weights=[1 / 16] * 16)
