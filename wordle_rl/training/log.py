"""Everything that a run writes for people: metrics, games, boards, and what the loggers get."""

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from wordle_rl.evaluation.boards import boards_side_by_side, columns, shows_colours
from wordle_rl.evaluation.habits import later_guesses, warn_of_context, warn_of_repetition
from wordle_rl.evaluation.summary import game_record, most_common_guesses
from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import GameReward, reward_of_guess
from wordle_rl.rollouts.talk import games_of
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.experiment import TrainerSettings
from wordle_rl.training.step import StepResult


class Reporter(Protocol):
    """Receives a run's metrics and texts, such as for TensorBoard."""

    def metrics(self, values: dict[str, float], step: int) -> None: ...
    def text(self, tag: str, markdown: str, step: int) -> None: ...
    def histogram(self, tag: str, values: Sequence[float], step: int) -> None: ...
    def games(self, records: Sequence[Mapping[str, Any]], step: int) -> None: ...  # a validation's
    # What was received after a step is received again. kept: the metrics until then, read when
    # they are asked for.
    def cut_back(self, step: int, kept: Iterable[Mapping[str, Any]]) -> None: ...


class RunLog:
    """The logs of a run. Every process may call it, but only the first one writes."""

    def __init__(
        self,
        folder: RunFolder,
        reporter: Reporter,
        settings: TrainerSettings,
        *,
        writes: bool,
        whole_games: bool = True,
    ) -> None:
        """whole_games: whether the update compares rewards of whole games, and none of guesses."""
        self.writes, self._reporter = writes, reporter
        self._metrics, self._games = folder.log("metrics"), folder.log("games")
        self._validations, self._groups = folder.log("validation_games"), folder.log("groups")
        self._show_games, self._whole_games = settings.show_games, whole_games
        self.start: dict[str, Any] = {}  # the metrics before the first step

    def metrics(
        self, step: int, values: Mapping[str, float], shown: Mapping[str, float] | None = None
    ) -> None:
        """Write the metrics of a step. The loggers get the finite ones of those that are shown."""
        self.start = self.start or dict(values)
        if self.writes:
            self._metrics.append(step, dict(values))
            scalars = {k: v for k, v in (shown or values).items() if math.isfinite(v)}
            self._reporter.metrics(scalars, step)

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """Give the loggers what a report on the test secrets found."""
        if self.writes:
            self._reporter.metrics(dict(values), step)

    def rewards(self, step: int, rewards: Sequence[GameReward]) -> None:
        """Give the loggers the rewards of a step's games, as a histogram."""
        if self.writes and rewards:
            self._reporter.histogram("rewards", [reward.total for reward in rewards], step)

    def group(self, step: int, record: Mapping[str, Any]) -> None:
        """Write one group of a step, as its report tells it."""
        if self.writes:
            self._groups.append(step, record)

    def line(self, tag: str, text: str, step: int) -> None:
        """Print a line, and give it to the loggers."""
        if self.writes:
            print(f"\n{text}", flush=True)
            self._reporter.text(tag, text, step)

    def training_games(self, step: int, result: StepResult, size: int) -> None:
        """Write one game of each group, and show the first ones. size: rollouts per group."""
        if not self.writes:
            return
        selection = [*select_games(result, size)]
        for game, reward, extras in selection:
            self._games.append(step, {"split": "train", **game_record(game, reward), **extras})
        games, rewards = [game for game, *_ in selection], [reward for _, reward, _ in selection]
        self._boards(step, "training games", games, rewards, games_of(result.rollouts))

    def validation_games(
        self, step: int, games: Sequence[Game], rewards: Sequence[GameReward]
    ) -> None:
        """Write all games of a validation, and show the first ones, one of each secret."""
        if not self.writes:
            return
        by_secret = {game.secret: i for i, game in reversed([*enumerate(games)])}
        indices = sorted(by_secret.values())  # the same secrets every time
        examples, scores = [games[i] for i in indices], [rewards[i] for i in indices]
        for pair in zip(examples[: self._show_games], scores, strict=False):
            self._games.append(step, {"split": "val", **game_record(*pair)})
        self._boards(step, "validation games", examples, scores, examples)
        records = [*map(game_record, games, rewards)]
        self._validations.extend(step, records)
        self._validations.pack()
        self._reporter.games(records, step)

    def _boards(
        self,
        step: int,
        tag: str,
        games: Sequence[Game],
        rewards: Sequence[GameReward],
        all_games: Sequence[Game],
    ) -> None:
        """Print and log boards of the first games, and the most common guesses of all_games."""
        games, rewards = games[: self._show_games], rewards[: self._show_games]
        if not self._whole_games:
            rewards = [GameReward(turns=(reward_of_guess([reward]),)) for reward in rewards]
        if not games:
            return
        boards = boards_side_by_side(games, columns(), colour=shows_colours(), rewards=rewards)
        guesses = ", ".join(f"{word} {count}" for word, count in most_common_guesses(all_games))
        guesses = f"most common guesses of {len(all_games)} games: {guesses or 'none'}"
        num_cut = sum(game.out_of_context for game in all_games)
        lines = [guesses, *warn_of_repetition("the policy", later_guesses(all_games))]
        lines += warn_of_context("the policy", num_cut, len(all_games))
        print(f"\nstep {step}, {tag}", boards, *lines, sep="\n", end="\n\n", flush=True)
        plain_boards = boards_side_by_side(games, columns(), colour=False, rewards=rewards)
        text = "\n\n".join([f"```\n{plain_boards}\n```", *lines])
        self._reporter.text(tag, text, step)

    def cut_back(self, step: int) -> None:
        """Delete what was logged after a step. Reads the logs' ends and the first metrics."""
        if not self.writes:
            return
        for log in (self._metrics, self._games, self._validations, self._groups):
            log.truncate_after(step)
        self.start = next(self._metrics.records(), {})
        self._reporter.cut_back(step, self._metrics.records())
        self._warn_of_lost(self._metrics, [*range(self._metrics.last_step + 1, step + 1)])
        last = self._validations.last_step
        rows = itertools.takewhile(lambda row: row["step"] > last, self._metrics.newest())
        steps = [row["step"] for row in rows if "val/win_rate" in row]
        self._warn_of_lost(self._validations, steps)

    def _warn_of_lost(self, log: StepLog, steps: Sequence[int]) -> None:
        """Warn of steps at a log's end that it lacks, as after a power cut."""
        if steps:
            message = f"{log.path} has lost {len(steps)} steps, the first one {min(steps)}"
            print(f"warning: {message}; curves and verdicts lack them", file=sys.stderr)

    def sync(self) -> None:
        """Flush the logs to disk."""
        if self.writes:
            for log in (self._metrics, self._games, self._validations, self._groups):
                log.sync()


def select_games(
    result: StepResult, num_generations: int
) -> Iterator[tuple[Game, GameReward, dict[str, Any]]]:
    """The first game of each group. With candidates: every game, with all its candidates.

    Yields the game, its reward, and further entries of its record: the mean advantage of its turns,
    and the candidates of each turn.
    """
    games: dict[int, list[int]] = {}  # the rollouts of each game, turn by turn
    for i, rollout in enumerate(result.rollouts):
        if rollout.within is not None or i % num_generations == 0:
            games.setdefault(id(rollout.whole_game), []).append(i)
    for members in games.values():
        rollouts = [result.rollouts[i] for i in members]
        indices = [i for i in members if result.rollouts[i].taken]
        advantages = np.concatenate([result.advantages[i] for i in indices])
        extras: dict[str, Any] = {"advantage": float(advantages.mean()) if len(advantages) else 0.0}
        candidates = [
            {
                "guess": rollout.game.turns[0].guess,
                "reward": rollout.reward.total,
                "advantage": float(result.advantages[i][0]),
                "taken": rollout.taken,
            }
            for i, rollout in zip(members, rollouts, strict=True)
            if rollout.within is not None
        ]
        if candidates:
            turns = range(0, len(candidates), num_generations)
            extras["candidates"] = [candidates[first : first + num_generations] for first in turns]
        reward = GameReward(turns=tuple(t for i in indices for t in result.rewards[i].turns))
        yield rollouts[0].whole_game, reward, extras
