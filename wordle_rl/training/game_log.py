"""Shows a run's games: lines of games.jsonl, boards on the terminal and in the loggers.

A step logs one game per group. If the rollout kind draws several candidates per guess, the step
logs every game.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.evaluation.boards import boards_side_by_side
from wordle_rl.evaluation.habits import later_guesses, warn_of_repetition
from wordle_rl.evaluation.summary import game_record, most_common_guesses
from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.records import games_of
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.terminal import columns, shows_colours

if TYPE_CHECKING:
    from wordle_rl.training.reporter import Reporter
    from wordle_rl.training.step import StepResult


class GameLog:
    """Writes some games of a step. shown: how many of them also appear as boards."""

    def __init__(self, log: StepLog, reporter: Reporter, shown: int) -> None:
        self._log, self._reporter, self._shown = log, reporter, shown

    def training(self, step: int, result: StepResult, size: int) -> None:
        """Write one game of each group, and boards of the first. size: rollouts per group."""
        games = list(select_games(result, size))
        for played in games:
            record = game_record(played.game, played.reward, played.advantage)
            self._log.append(step, {"split": "train", **record, **played.extra_entries})
        shown = games[: self._shown]
        self._print_boards(
            step,
            "training games",
            [played.game for played in shown],
            [played.reward for played in shown],
            games_of(result.rollouts),
        )

    def validation(self, step: int, games: Sequence[Game], rewards: Sequence[GameReward]) -> None:
        """Write the first games. They have the same secrets every time."""
        everything = games
        games, rewards = games[: self._shown], rewards[: self._shown]
        for game, reward in zip(games, rewards, strict=True):
            self._log.append(step, {"split": "val", **game_record(game, reward)})
        self._print_boards(step, "validation games", games, rewards, everything)

    def _print_boards(
        self,
        step: int,
        tag: str,
        games: Sequence[Game],
        rewards: Sequence[GameReward],
        everything: Sequence[Game],
    ) -> None:
        """Print and log boards of some games, and the most common guesses of everything."""
        if not games:
            return
        boards = boards_side_by_side(games, columns(), colour=shows_colours(), rewards=rewards)
        common = ", ".join(f"{word} {count}" for word, count in most_common_guesses(everything))
        common = f"most common guesses of all {len(everything)} games: {common or 'none'}"
        lines = [common, *warn_of_repetition("the policy", later_guesses(everything))]
        print(f"\nstep {step}, {tag}", boards, *lines, sep="\n", end="\n\n", flush=True)
        plain = boards_side_by_side(games, columns(), colour=False, rewards=rewards)
        text = "\n\n".join([f"```\n{plain}\n```", *lines])
        self._reporter.text(tag, text, step)


@dataclass(frozen=True, kw_only=True)
class ShownGame:
    """A game of a step, with its reward and advantage."""

    game: Game
    reward: GameReward
    advantage: float  # mean over its turns
    candidates: list[list[dict[str, Any]]] = field(default_factory=list)  # by turn, if any

    @property
    def extra_entries(self) -> Mapping[str, Any]:
        """Entries of games.jsonl beyond the game itself."""
        return {"candidates": self.candidates} if self.candidates else {}


def select_games(result: StepResult, num_generations: int) -> Iterator[ShownGame]:
    """The first game of each group. With candidates: every game, with all its candidates."""
    games: dict[int, list[int]] = {}
    for i, rollout in enumerate(result.rollouts):
        if rollout.within is not None:
            games.setdefault(id(rollout.within), []).append(i)
        elif i % num_generations == 0:
            yield _describe_game(result, i)
    for members in games.values():
        yield _describe_candidates(result, members, num_generations)


def _describe_game(result: StepResult, i: int) -> ShownGame:
    advantages = result.advantages[i]
    return ShownGame(
        game=result.rollouts[i].game,
        reward=result.rewards[i],
        advantage=float(advantages.mean()) if len(advantages) else 0.0,
    )


def _describe_candidates(result: StepResult, members: list[int], num_generations: int) -> ShownGame:
    """A game with its candidates. members: its rollouts, turn by turn."""
    game = result.rollouts[members[0]].within
    assert game is not None
    taken = [i for i in members if result.rollouts[i].taken]
    described = [
        {
            "guess": result.rollouts[i].game.turns[0].guess,
            "reward": result.rewards[i].total,
            "advantage": float(result.advantages[i][0]),
            "taken": result.rollouts[i].taken,
        }
        for i in members
    ]
    turns = range(0, len(described), num_generations)
    return ShownGame(
        game=game,
        reward=GameReward(turns=tuple(result.rewards[i].turns[0] for i in taken)),
        advantage=float(np.mean([result.advantages[i][0] for i in taken])),
        candidates=[described[first : first + num_generations] for first in turns],
    )
