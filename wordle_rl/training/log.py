"""Everything that a run writes for people: metrics.jsonl, games.jsonl, loggers, boards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.game_log import GameLog
from wordle_rl.training.reporter import Reporter
from wordle_rl.training.step import StepResult


class RunLog:
    """The logs of a run. Every process may call it, but only the first one writes."""

    def __init__(
        self, folder: RunFolder, reporter: Reporter, *, shown_games: int, writes: bool
    ) -> None:
        """shown_games: how many games of a step appear as boards."""
        self.writes = writes
        self._reporter = reporter
        self._metrics, self._games = folder.metrics_log(), folder.games_log()
        self._boards = GameLog(self._games, reporter, shown_games)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of a step. The loggers get only the finite ones."""
        if self.writes:
            self._metrics.append(step, dict(values))
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            self._reporter.metrics(finite, step)

    def training_games(self, step: int, result: StepResult, size: int) -> None:
        """Write games of a training step. size: rollouts per group."""
        if self.writes:
            self._boards.training(step, result, size)

    def validation_games(
        self, step: int, games: Sequence[Game], rewards: Sequence[GameReward]
    ) -> None:
        """Write validation games, one per secret, with their rewards."""
        if self.writes:
            self._boards.validation(step, games, rewards)

    def cut_back(self, step: int) -> None:
        """Delete what was logged after a step, and pass the rest to the loggers."""
        if self.writes:
            for log in (self._metrics, self._games):
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
