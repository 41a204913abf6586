"""Everything that a run writes for people: metrics, games, boards, and what the loggers get."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from wordle_rl.evaluation.boards import tabulate_games
from wordle_rl.evaluation.summary import game_record
from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.game_log import GameLog
from wordle_rl.training.reporter import Reporter
from wordle_rl.training.settings import TrainerSettings
from wordle_rl.training.step import StepResult


class RunLog:
    """The logs of a run. Every process may call it, but only the first one writes."""

    def __init__(
        self,
        folder: RunFolder,
        reporter: Reporter,
        settings: TrainerSettings,
        *,
        tables: bool,
        writes: bool,
    ) -> None:
        """tables: whether the loggers get a table of validation games and histograms."""
        self.writes, self._tables = writes, tables
        self._reporter = reporter
        self._metrics, self._games = folder.metrics_log(), folder.games_log()
        self._validations = folder.validation_games_log()
        self._most_bytes = 1e6 * settings.validation_games_mb
        self._told_full = False
        self._boards = GameLog(self._games, reporter, settings.show_games)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of a step. The loggers get only the finite ones."""
        if self.writes:
            self._metrics.append(step, dict(values))
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            self._reporter.metrics(finite, step)

    def training_rewards(self, step: int, result: StepResult) -> None:
        """Give the loggers histograms of a step's rewards and advantages."""
        if self.writes and self._tables:
            self._histogram("rewards/train", [reward.total for reward in result.rewards], step)
            advantages = [value for turns in result.advantages for value in turns.tolist()]
            self._histogram("advantages/train", advantages, step)

    def training_games(self, step: int, result: StepResult, size: int) -> None:
        """Write games of a training step. size: rollouts per group."""
        if self.writes:
            self._boards.training(step, result, size)

    def validation_games(
        self, step: int, games: Sequence[Game], rewards: Sequence[GameReward]
    ) -> None:
        """Write all games of a validation, with their rewards, and show the first ones."""
        if not self.writes:
            return
        first = {game.secret: i for i, game in reversed([*enumerate(games)])}
        chosen = sorted(first.values())  # one game of each secret
        self._boards.validation(step, [games[i] for i in chosen], [rewards[i] for i in chosen])
        self._write_validation(step, games, rewards)
        if self._tables:
            self._reporter.table("validation by secret", tabulate_games(games, rewards), step)
            self._histogram("rewards/val", [reward.total for reward in rewards], step)
            self._histogram("guesses/val", list(map(_count_guesses, games)), step)

    def _write_validation(
        self, step: int, games: Sequence[Game], rewards: Sequence[GameReward]
    ) -> None:
        """Add all games to validation_games.jsonl, or none of them if they do not fit."""
        if not self._most_bytes:
            return
        records = map(game_record, games, rewards)
        if self._validations.extend(step, records, most=self._most_bytes) or self._told_full:
            return
        self._told_full = True
        print(
            f"warning: {self._validations.path.name} has no room for the validation of step {step} "
            "(trainer.validation_games_mb)",
            file=sys.stderr,
            flush=True,
        )

    def _histogram(self, name: str, values: Sequence[float], step: int) -> None:
        """Give the loggers a histogram, unless there is nothing to count."""
        if values:
            self._reporter.histogram(name, values, step)

    def cut_back(self, step: int) -> None:
        """Delete what was logged after a step, and pass the rest to the loggers."""
        if self.writes:
            for log in (self._metrics, self._games, self._validations):
                log.truncate_after(step)
            self._reporter.continue_from(self._metrics.read())

    def last_metrics(self) -> dict[str, float]:
        """The newest record of metrics.jsonl, empty if there is none."""
        return (self._metrics.read() or [{}])[-1]

    def sync(self) -> None:
        """Flush the logs to disk."""
        if self.writes:
            self._metrics.sync()
            self._games.sync()
            self._validations.sync()


def _count_guesses(game: Game) -> float:
    """The turns that a game used. A lost one counts as one more than it had."""
    return float(game.state.turn if game.won else game.rules.max_turns + 1)
