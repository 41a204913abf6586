"""Full games of a policy on held-out secrets, and what they say about it.

The processes of a policy share the games; each of them gets all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from wordle_rl.build import Experiment
from wordle_rl.chat import Chat
from wordle_rl.game import Game
from wordle_rl.policy import Policy
from wordle_rl.processes import share
from wordle_rl.rollout import PolicyActor, play
from wordle_rl.sampling import Sampling


def policy_games(
    policy: Policy,
    chat: Chat,
    secrets: Sequence[str],
    setup: Experiment,
    *,
    sampling: Sampling | None = None,
    time_limit: float = float("inf"),
    check: Callable[[], None] | None = None,
) -> list[Game]:
    """One full game per secret, from an empty board; greedy unless told otherwise.

    time_limit, check: see wordle_rl.rollout.play.
    """
    games: list[Game] = []
    mine = share(len(secrets), policy.processes)
    most = setup.model.games_at_once
    for start in range(mine.start, mine.stop, most):
        part = secrets[start : min(start + most, mine.stop)]
        lab = setup.lab
        actor = PolicyActor(
            engine=policy.engine(), chat=chat, style=lab.style,
            sampling=sampling or setup.greedy, seed=lab.seed, first_rollout=start,
        )  # fmt: skip
        games += play(
            actor, part, words=lab.words, rules=lab.rules, time_limit=time_limit, check=check
        )
    return [game for part in policy.processes.gather(games) for game in part]


def validate(
    policy: Policy, chat: Chat, setup: Experiment, check: Callable[[], None] | None = None
) -> dict[str, float]:
    """Metrics of a policy on the validation secrets."""
    trainer, lab = setup.trainer, setup.lab
    secrets = [s for s in setup.validation for _ in range(trainer.validation_samples)]
    sampling = replace(lab.sampling, temperature=trainer.validation_temperature)
    games = policy_games(policy, chat, secrets, setup, sampling=sampling, check=check)
    totals = np.array([lab.rewards.score(game).total for game in games])
    # Games on one secret are not independent: the error is that of the secrets' means.
    rewards = totals.reshape(-1, trainer.validation_samples).mean(axis=1)
    over = lab.rules.max_turns + 1
    return {
        "val/win_rate": sum(game.won for game in games) / len(games),
        "val/mean_guesses_losses_as_7": float(
            np.mean([game.state.turn if game.won else over for game in games])
        ),
        "val/reward": float(rewards.mean()),
        "val/reward_standard_error": float(rewards.std(ddof=1) / math.sqrt(len(rewards))),
    }
