"""Games of a run for people: lines of games.jsonl, boards on the terminal and in the loggers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wordle_rl.boards import boards_side_by_side, markdown_board
from wordle_rl.game import Game
from wordle_rl.game_statistics import game_record
from wordle_rl.json_files import StepLog
from wordle_rl.rewards.scoring import GameReward

if TYPE_CHECKING:
    from wordle_rl.step import StepResult
    from wordle_rl.training import Reporter


class GameLog:
    """Writes some games of a step. shown: how many of them as boards."""

    def __init__(self, log: StepLog, reporter: Reporter, shown: int) -> None:
        self._log, self._reporter, self._shown = log, reporter, shown

    def training(self, step: int, result: StepResult, size: int) -> None:
        """One game of each group, which has `size` games; boards of the first."""
        first = range(0, len(result.rollouts), size)
        for i in first:
            advantage = float(result.advantages[i].mean())
            record = game_record(result.rollouts[i].game, result.rewards[i], advantage)
            self._log.append(step, {"split": "train", **record})
        games = [result.rollouts[i].game for i in first[: self._shown]]
        rewards = [result.rewards[i] for i in first[: self._shown]]
        self._show(step, "training games", games, rewards)

    def validation(self, step: int, games: Sequence[Game], rewards: Sequence[GameReward]) -> None:
        """The first games, which are on the same secrets each time."""
        games, rewards = games[: self._shown], rewards[: self._shown]
        for game, reward in zip(games, rewards, strict=True):
            self._log.append(step, {"split": "val", **game_record(game, reward)})
        self._show(step, "validation games", games, rewards)

    def _show(
        self, step: int, tag: str, games: Sequence[Game], rewards: Sequence[GameReward]
    ) -> None:
        if not games:
            return
        boards = boards_side_by_side(games, colour=sys.stdout.isatty(), rewards=rewards)
        print(f"\nstep {step}, {tag}\n{boards}\n", flush=True)
        text = "\n\n".join(map(markdown_board, games, rewards))
        self._reporter.text(tag, text, step)
