"""Plays games with the policy on held-out secrets, and computes their metrics.

The processes share the work, and each gets all games.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wordle_rl.evaluation.intervals import win_interval
from wordle_rl.evaluation.results import depth_metrics
from wordle_rl.evaluation.skill import skill_metrics
from wordle_rl.evaluation.summary import reward_means
from wordle_rl.game.rules import Game, State
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling, Stream
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.runs.processes import share
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.metrics import answer_tokens, habit_metrics
from wordle_rl.training.progress import GameCount, announce


@dataclass(frozen=True, kw_only=True)
class HeldOutPlay:
    """Plays games with the policy outside training."""

    policy: Policy
    form: Form
    setup: Experiment

    def play(
        self,
        secrets: Sequence[str],
        what: str,
        *,
        starts: Sequence[State] | None = None,
        sampling: Sampling | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> list[Game]:
        """Play one game per secret, from an empty board without `starts`.

        starts: the state in which each game begins. sampling: None plays greedily.
        what: the purpose of the games, printed if they take long. check: called between turns; it
        may raise to abandon the games.
        """
        recipe, most = self.setup.recipe, self.setup.model.games_at_once
        mine = share(len(secrets), self.policy.processes)
        games: list[Game] = []
        count = GameCount(len(mine))

        def watch(batch: Sequence[Game]) -> None:
            check()
            count.look(batch)

        with announce(lambda: f"{what}: {count}"):
            for start in range(mine.start, mine.stop, most):
                player = ModelPlayer(
                    engine=self.policy.engine(),
                    form=self.form,
                    sampling=sampling or self.setup.greedy,
                    draws=Draws(seed=recipe.seed, stream=Stream.EVALUATION, first_rollout=start),
                )
                now = slice(start, min(start + most, mine.stop))
                given = None if starts is None else starts[now]
                batch = new_games(secrets[now], recipe.words, recipe.rules, given)
                games += play(player, batch, watch=watch)
                count.next_batch()
            return [game for part in self.policy.processes.gather(games) for game in part]

    def validate(
        self,
        check: Callable[[], None] = lambda: None,
        show: Callable[[list[Game], list[GameReward]], None] | None = None,
    ) -> dict[str, float]:
        """Metrics of games on the validation secrets, with the rewards of reward=.

        show: called with the games, those of one secret together, and their rewards.
        """
        setup, samples = self.setup, self.setup.trainer.validation_samples
        secrets = [secret for secret in setup.validation for _ in range(samples)]
        temperature = setup.trainer.validation_temperature
        sampling = replace(setup.recipe.sampling, temperature=temperature)
        starts = [state for state in setup.validation_starts for _ in range(samples)]
        games = self.play(secrets, "validation", starts=starts, sampling=sampling, check=check)
        scores = [setup.recipe.rewards.score(game) for game in games]
        if show is not None:
            show(games, scores)
        totals = np.array([score.total for score in scores])
        # Games with the same secret are not independent: the error is over the means of secrets.
        rewards = totals.reshape(-1, samples).mean(axis=1)
        low, high = win_interval([game.won for game in games], secrets)
        return {
            **_wins("val", games),
            "val/win_rate_low": low,
            "val/win_rate_high": high,
            **(depth_metrics("val", games) if setup.validation_history else {}),
            **habit_metrics("val", games),
            "val/tokens_per_answer": answer_tokens(games),
            **skill_metrics(games, setup.knowledge, setup.regret, "val/skill"),
            "val/reward": float(rewards.mean()),
            **{f"val/reward/{name}": mean for name, mean in reward_means(scores).items()},
            "val/reward_standard_error": float(rewards.std(ddof=1) / math.sqrt(len(rewards))),
        }

    def watch(self, check: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Metrics of greedy games on the test secrets, and on equally many training secrets.

        They show the gap between the two. Nothing in a run depends on them.
        """
        test, training = self.setup.test, self.setup.recipe.secrets
        some = training[:: max(len(training) // len(test), 1)][: len(test)]
        metrics = {}
        for name, secrets in (("train", some), ("test", test)):
            games = self.play(secrets, f"{name} secrets", check=check)
            metrics |= _wins(f"watch/{name}", games)
        return metrics


def _wins(prefix: str, games: Sequence[Game]) -> dict[str, float]:
    turns = [game.state.turn if game.won else game.rules.max_turns + 1 for game in games]
    return {
        f"{prefix}/win_rate": sum(game.won for game in games) / len(games),
        f"{prefix}/mean_guesses_with_losses": float(np.mean(turns)),
    }
