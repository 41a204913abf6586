"""Full games of a policy on held-out secrets, and what they say about it.

The processes of a policy share the games; each of them gets all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from wordle_rl.evaluation.skill import skill_metrics
from wordle_rl.evaluation.summary import reward_means
from wordle_rl.game.rules import Game
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling, Stream
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.play import play
from wordle_rl.rollouts.policy_actor import PolicyActor
from wordle_rl.runs.processes import share
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.metrics import habit_metrics
from wordle_rl.training.progress import GameCount, told


def policy_games(
    policy: Policy,
    chat: Chat,
    secrets: Sequence[str],
    setup: Experiment,
    *,
    what: str,
    sampling: Sampling | None = None,
    check: Callable[[], None] | None = None,
) -> list[Game]:
    """One full game per secret, from an empty board; greedy unless told otherwise.

    what: the purpose of the games; the terminal shows it when they take long. check: see
    wordle_rl.rollouts.play.play.
    """
    recipe, most = setup.recipe, setup.model.games_at_once
    mine = share(len(secrets), policy.processes)
    games: list[Game] = []
    count = GameCount(len(mine))
    with told(lambda: f"{what}: {count}"):
        for start in range(mine.start, mine.stop, most):
            actor = PolicyActor(
                engine=policy.engine(), chat=chat, style=recipe.style, form=recipe.form,
                sampling=sampling or setup.greedy, seed=recipe.seed, stream=Stream.EVALUATION,
                first_rollout=start,
            )  # fmt: skip
            games += play(
                actor, secrets[start : min(start + most, mine.stop)], words=recipe.words,
                rules=recipe.rules, check=check, look=count.batch(),
            )  # fmt: skip
        return [game for part in policy.processes.gather(games) for game in part]


def validate(
    policy: Policy,
    chat: Chat,
    setup: Experiment,
    check: Callable[[], None] | None = None,
    show: Callable[[list[Game], list[GameReward]], None] | None = None,
) -> dict[str, float]:
    """Metrics of a policy on the validation secrets, by the rewards of reward=.

    show: called with a game of each secret and its reward.
    """
    trainer, recipe = setup.trainer, setup.recipe
    secrets = [s for s in setup.validation for _ in range(trainer.validation_samples)]
    sampling = replace(recipe.sampling, temperature=trainer.validation_temperature)
    games = policy_games(
        policy, chat, secrets, setup, what="validation", sampling=sampling, check=check
    )
    scores = [recipe.rewards.score(game) for game in games]
    if show is not None:
        show(games[:: trainer.validation_samples], scores[:: trainer.validation_samples])
    totals = np.array([score.total for score in scores])
    # Games on one secret are not independent: the error is that of the secrets' means.
    rewards = totals.reshape(-1, trainer.validation_samples).mean(axis=1)
    return {
        **_wins("val", games),
        **habit_metrics("val", games),
        **skill_metrics(games, setup.knowledge, setup.regret, "val/skill"),
        "val/reward": float(rewards.mean()),
        **{f"val/reward/{name}": mean for name, mean in reward_means(scores).items()},
        "val/reward_standard_error": float(rewards.std(ddof=1) / math.sqrt(len(rewards))),
    }


def watch(
    policy: Policy, chat: Chat, setup: Experiment, check: Callable[[], None] | None = None
) -> dict[str, float]:
    """Metrics of greedy games on the test secrets and on as many of training: their gap.

    They are for looking at afterwards; nothing in a run depends on them.
    """
    training = setup.recipe.secrets
    some = training[:: max(len(training) // len(setup.test), 1)][: len(setup.test)]
    metrics = {}
    for name, secrets in (("train", some), ("test", setup.test)):
        games = policy_games(policy, chat, secrets, setup, what=f"{name} secrets", check=check)
        metrics |= _wins(f"watch/{name}", games)
    return metrics


def _wins(prefix: str, games: Sequence[Game]) -> dict[str, float]:
    turns = [game.state.turn if game.won else game.rules.max_turns + 1 for game in games]
    return {
        f"{prefix}/win_rate": sum(game.won for game in games) / len(games),
        f"{prefix}/mean_guesses_with_losses": float(np.mean(turns)),
    }
