"""A training run around the step: learning rate, validation, checkpoints, logs, report.

One Training serves every backend, which only decides who calls run_step. Nothing here draws random
numbers or reads the clock for anything but timings, so a resumed run repeats an unbroken one.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wordle_rl.boards import boards_side_by_side, markdown_board
from wordle_rl.build import Experiment
from wordle_rl.chat import Chat
from wordle_rl.checkpoints import CheckpointStore
from wordle_rl.evaluation import game_record, summarise, write_summary
from wordle_rl.game import Game
from wordle_rl.json_files import write_json
from wordle_rl.policy import Policy
from wordle_rl.rollout import PolicyActor, play
from wordle_rl.run_folder import RunFolder
from wordle_rl.sampling import Sampling
from wordle_rl.step import StepResult, train_step
from wordle_rl.tables import table

_GAMES_AT_ONCE = 512  # in validation and report; bounds the memory of keys and values
_PATIENCE = 5  # updates in a row that may fail before the run stops


class Reporter(Protocol):
    """Where metrics and texts go besides the run folder."""

    def metrics(self, values: dict[str, float], step: int) -> None: ...

    def text(self, tag: str, markdown: str, step: int) -> None: ...


class TrainingFailed(RuntimeError):
    """The run cannot go on; the message says why and where its state was saved."""


def policy_games(
    policy: Policy,
    chat: Chat,
    secrets: Sequence[str],
    setup: Experiment,
    *,
    sampling: Sampling | None = None,
    time_limit: float = float("inf"),
) -> list[Game]:
    """One full game per secret, from an empty board; greedy unless told otherwise."""
    games: list[Game] = []
    for start in range(0, len(secrets), _GAMES_AT_ONCE):
        part = secrets[start : start + _GAMES_AT_ONCE]
        actor = PolicyActor(
            engine=policy.engine(), chat=chat, style=setup.lab.style,
            sampling=sampling or setup.greedy, seed=setup.lab.seed, first_rollout=start,
        )  # fmt: skip
        lab = setup.lab
        games += play(actor, part, words=lab.words, rules=lab.rules, time_limit=time_limit)
    return games


class Training:
    """One run: what happens before, in, between and after its steps."""

    def __init__(
        self, policy: Policy, setup: Experiment, folder: RunFolder, reporter: Reporter
    ) -> None:
        self.policy = policy
        self.setup = setup
        self.folder = folder
        self.reporter = reporter
        self.chat = Chat(policy.tokenizer)
        self.store = CheckpointStore(folder.checkpoints)
        self.first_step = 0
        self._metrics_log = folder.metrics_log()
        self._games_log = folder.games_log()
        # What a checkpoint restores besides weights and optimiser.
        self._best: list[float] = []  # validation wins and -guesses of the best checkpoint
        self._totals = {"games": 0.0, "wins": 0.0, "skipped_groups": 0.0}
        self._failures = 0
        if setup.lab.algorithm.needs_reference:
            policy.keep_reference()

    # -- before and after -------------------------------------------------------------------------

    def begin(self) -> None:
        """Report and validate the start policy, and keep it as the first checkpoint."""
        if self.setup.trainer.report:
            write_json(self.folder.path / "start.json", self._report("start"))
        self._validate(0)

    def restore(self) -> bool:
        """Go back to the newest checkpoint. Returns whether there was one."""
        checkpoint = self.store.load_latest()
        if checkpoint is None:
            return False
        self.policy.load(checkpoint.path)
        state = json.loads((checkpoint.path / "state.json").read_text())
        self.first_step = state["step"]
        self._best, self._totals = state["best"], state["totals"]
        self._failures = state["failures"]
        self._metrics_log.truncate_after(self.first_step)
        self._games_log.truncate_after(self.first_step)
        return True

    def finish(self) -> dict[str, Any]:
        """Report the best checkpoint; writes summary.json last of all. Returns the summary."""
        self._save(self.setup.trainer.steps)
        best = self.store.best()
        assert best is not None
        self.policy.load(best)
        self.policy.export(self.folder.path / "model")
        summary: dict[str, Any] = {
            "best_step": json.loads((best / "state.json").read_text())["step"],
            "val_win_rate": self._best[0],
            **{f"total_{name}": value for name, value in self._totals.items()},
        }
        if self.setup.trainer.report:
            end = self._report("end")
            start = json.loads((self.folder.path / "start.json").read_text())
            print("\n" + table([end, start]), flush=True)
            summary |= {**end, "start": start, "player": "end"}
        write_summary(self.folder.path, summary)
        self.folder.set_status("finished")
        return summary

    def _report(self, player: str) -> dict[str, Any]:
        setup = self.setup
        begin = time.monotonic()
        games = policy_games(self.policy, self.chat, setup.test, setup)
        split = "all" if len(setup.test) == len(setup.words.answers) else "test"
        return summarise(
            games, setup.knowledge, player=player, split=split, rules=setup.lab.rules,
            seconds=time.monotonic() - begin,
        )  # fmt: skip

    # -- one step ---------------------------------------------------------------------------------

    def run_step(self, step: int) -> dict[str, float]:
        """Step number `step`, counted from 0, and everything that is due after it."""
        begin = time.monotonic()
        setup = self.setup
        lr = setup.optim.lr_at(step, setup.trainer.steps)
        self.policy.set_learning_rate(lr)
        self.policy.timers.take()
        result = train_step(self.policy, self.chat, setup.lab, step)
        seconds = time.monotonic() - begin
        done = step + 1
        metrics = {
            **result.metrics,
            "lr": lr,
            "time/step": seconds,
            "games_per_second": len(result.rollouts) / seconds,
            **{f"time/{name}": spent for name, spent in self.policy.timers.take().items()},
        }
        self._count(metrics)
        metrics |= {f"total/{name}": value for name, value in self._totals.items()}
        if done % setup.trainer.games_every == 0:
            self._log_games(done, result)
        best = False
        if done % setup.trainer.validate_every == 0 or done == setup.trainer.steps:
            validation, best = self._validation()
            metrics |= validation
        self._log(done, metrics)
        if best or done % setup.trainer.checkpoint_every == 0:
            self._save(done, best=best)
        self._check_failures(done, metrics)
        return metrics

    def _count(self, metrics: dict[str, float]) -> None:
        self._totals["games"] += metrics["train/games"]
        self._totals["wins"] += metrics["train/wins"]
        self._totals["skipped_groups"] += metrics["groups/skipped"] * self.setup.lab.groups
        failed = metrics.get("update/skipped", 0.0) > 0
        self._failures = self._failures + 1 if failed else 0

    def _check_failures(self, step: int, metrics: dict[str, float]) -> None:
        if self._failures < _PATIENCE:
            return
        self._save(step)
        write_json(self.folder.path / "failure.json", {"step": step, "metrics": metrics})
        self.folder.set_status("failed")
        raise TrainingFailed(
            f"loss or gradient was not finite in {_PATIENCE} updates in a row (last step {step}); "
            f"state and metrics are in {self.folder.path}; try a lower optim.lr"
        )

    # -- what is due between steps ----------------------------------------------------------------

    def _validate(self, step: int) -> None:
        metrics, _ = self._validation()
        self._log(step, metrics)
        self._save(step, best=True)

    def _validation(self) -> tuple[dict[str, float], bool]:
        """Metrics of the policy on the validation secrets, and whether it is the best so far."""
        trainer, lab = self.setup.trainer, self.setup.lab
        secrets = [s for s in self.setup.validation for _ in range(trainer.validation_samples)]
        sampling = replace(lab.sampling, temperature=trainer.validation_temperature)
        games = policy_games(self.policy, self.chat, secrets, self.setup, sampling=sampling)
        self.policy.timers.take()
        totals = np.array([lab.rewards.score(game).total for game in games])
        # Games on one secret are not independent: the error is that of the secrets' means.
        rewards = totals.reshape(-1, trainer.validation_samples).mean(axis=1)
        over = lab.rules.max_turns + 1
        guesses = float(np.mean([game.state.turn if game.won else over for game in games]))
        wins = sum(game.won for game in games)
        metrics = {
            "val/win_rate": wins / len(games),
            "val/mean_guesses_losses_as_7": guesses,
            "val/reward": float(rewards.mean()),
            "val/reward_standard_error": float(rewards.std(ddof=1) / math.sqrt(len(rewards))),
        }
        score = [wins / len(games), -guesses]
        best = score > self._best
        if best:
            self._best = score
        return metrics, best

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        self._metrics_log.append(step, metrics)
        self.reporter.metrics({k: v for k, v in metrics.items() if math.isfinite(v)}, step)

    def _log_games(self, step: int, result: StepResult) -> None:
        """One game of each group to games.jsonl; a few to the terminal and the loggers."""
        size = self.setup.lab.num_generations
        for i in range(0, len(result.rollouts), size):
            reward, advantage = result.rewards[i], float(result.advantages[i].mean())
            record = game_record(result.rollouts[i].game, reward, advantage)
            self._games_log.append(step, record)
        shown = range(0, len(result.rollouts), size)[: self.setup.trainer.show_games]
        if not shown:
            return
        colour = sys.stdout.isatty()
        boards = boards_side_by_side([result.rollouts[i].game for i in shown], colour=colour)
        print(f"\nstep {step}, games of the first groups\n{boards}\n", flush=True)
        text = "\n\n".join(
            markdown_board(result.rollouts[i].game, result.rewards[i]) for i in shown
        )
        self.reporter.text("games", text, step)

    def _save(self, step: int, *, best: bool = False) -> None:
        def write(folder: Path) -> None:
            self.policy.save(folder)
            state = {
                "step": step,
                "best": self._best,
                "totals": self._totals,
                "failures": self._failures,
            }
            write_json(folder / "state.json", state)

        self._metrics_log.sync()
        self._games_log.sync()
        self.store.save(step, write)
        if best:
            self.store.mark_best(step)
