"""Plays games with the policy on held-out secrets: validation, and a report before and after.

The processes share the work, and each gets all games. The first one writes and prints.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wordle_rl.evaluation.boards import columns
from wordle_rl.evaluation.intervals import win_interval
from wordle_rl.evaluation.results import needed_guesses
from wordle_rl.evaluation.skill import skill_metrics
from wordle_rl.evaluation.solvers import solver_results
from wordle_rl.evaluation.summary import game_record, reward_means, summarise
from wordle_rl.evaluation.tables import measure_change, report_table
from wordle_rl.game.rules import Game
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling, Stream, describe_drawing
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import Actor, ModelPlayer, Portions, new_games, open_with, play
from wordle_rl.runs.files import StepLog, json_bytes, read_object, write_bytes, write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.processes import share
from wordle_rl.runs.progress import announce
from wordle_rl.training.experiment import Experiment, describe_run_lineage
from wordle_rl.training.lineage import Stage
from wordle_rl.training.metrics import answer_tokens, habit_metrics
from wordle_rl.training.progress import GameCount

SMALL = 20_000_000  # parameters below which a model plays all test secrets in seconds
_LIMIT = 64  # secrets for the others


@dataclass(frozen=True, kw_only=True)
class HeldOutPlay:
    """Plays games with the policy outside training."""

    policy: Policy
    form: Form
    setup: Experiment
    portions: Portions
    spent: list[float] = field(default_factory=lambda: [0.0, 0])  # seconds and games of all plays

    def play(
        self,
        secrets: Sequence[str],
        what: str,
        *,
        sampling: Sampling | None = None,
        opener: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> list[Game]:
        """Play one game per secret. what: their purpose, printed if they take long.

        sampling: None plays greedily. opener: a first guess in place of the policy's own. check:
        called between turns; it may raise to abandon them.
        """
        recipe, portion = self.setup.recipe, share(len(secrets), self.policy.processes)
        begin = time.monotonic()
        count = GameCount(len(portion))

        def watch(batch: Sequence[Game]) -> None:
            check()
            count.look(batch)

        def play_some(numbers: Sequence[int]) -> list[Game]:
            player: Actor = ModelPlayer(
                engine=self.policy.engine(),
                form=self.form,
                sampling=sampling or self.setup.greedy,
                draws=Draws(seed=recipe.seed, stream=Stream.EVALUATION, first_rollout=numbers[0]),
                knowledge=recipe.knowledge,
            )
            if opener is not None:
                player = open_with(opener, recipe.style.write(opener), player)
            games = new_games([secrets[i] for i in numbers], recipe.words, recipe.rules)
            play(player, games, watch=watch)
            count.next_batch()
            return games

        with announce(lambda: f"{what}: {count}"):
            games = self.portions.play(play_some, portion, 1, self.setup.model.games_at_once)
            games = [game for part in self.policy.processes.gather(games) for game in part]
        self.spent[:] = self.spent[0] + time.monotonic() - begin, self.spent[1] + len(games)
        return games

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
        games = self.play(secrets, "validation", sampling=sampling, check=check)
        rewards = [setup.recipe.rewards.reward(game) for game in games]
        if show is not None:
            show(games, rewards)
        # Games with the same secret are not independent: the error is over the means of secrets.
        means = np.array([reward.total for reward in rewards]).reshape(-1, samples).mean(axis=1)
        low, high = win_interval([game.won for game in games], secrets)
        return {
            **_wins("val", games),
            "val/win_rate_low": low,
            "val/win_rate_high": high,
            "val/out_of_context": float(sum(game.out_of_context for game in games)),
            **habit_metrics("val", games),
            "val/tokens_per_answer": answer_tokens(games),
            **skill_metrics(games, setup.knowledge, setup.regret, "val/skill"),
            "val/reward": float(means.mean()),
            **{f"val/reward/{name}": mean for name, mean in reward_means(rewards).items()},
            "val/reward_standard_error": float(means.std(ddof=1) / math.sqrt(len(means))),
        }

    def watch(self, check: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Metrics of greedy games on the test secrets, and on equally many training secrets.

        They show the gap between the two. Nothing in a run depends on them.
        """
        test, training = self.setup.test, self.setup.recipe.secrets
        sample = training[:: max(len(training) // len(test), 1)][: len(test)]
        metrics = {}
        for name, secrets in (("train", sample), ("test", test)):
            games = self.play(secrets, f"{name} secrets", check=check)
            metrics |= _wins(f"watch/{name}", games)
        return metrics


def _wins(prefix: str, games: Sequence[Game]) -> dict[str, float]:
    return {
        f"{prefix}/win_rate": sum(game.won for game in games) / len(games),
        f"{prefix}/mean_guesses_with_losses": float(np.mean(needed_guesses(games))),
    }


def report_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """What the loggers show of a report on the test secrets."""
    return {f"report/{name}": summary[name] for name in ("win_rate", "mean_guesses_with_losses")}


def choose_report_limit(asked: int | None, parameters: int) -> int | None:
    """How many test secrets the reports play at most, None for all.

    asked: trainer.report_limit. parameters: of the model.
    """
    return _LIMIT if asked is None and parameters >= SMALL else asked


class RunReports:
    """Greedy games on the test secrets before the first step and after the last, side by side."""

    def __init__(
        self,
        play: HeldOutPlay,
        folder: RunFolder,
        stages: Sequence[Stage],
        check: Callable[[], None],
    ) -> None:
        """stages: of the model that the run makes, the run itself last."""
        self._play, self._stages, self._check = play, stages, check
        self._writes, self._folder = play.policy.processes.rank == 0, folder.path
        setting = play.setup.trainer.report_limit
        limit = choose_report_limit(setting, play.policy.machine.num_parameters[1])
        self._secrets = play.setup.test[:limit]

    def begin(self) -> dict[str, Any]:
        """Report on the start, in two files. Returns its summary."""
        count, total = len(self._secrets), len(self._play.setup.test)
        if self._writes and count < total:
            print(f"the reports play {count} of {total} secrets (trainer.report_limit)")
        summary, games = self.report("start", self._stages[:-1])
        if self._writes:
            _write_games(self._folder / "start_games.jsonl", games)
            write_json(self._folder / "start.json", summary)
        return summary

    def end(self, step: int) -> dict[str, Any]:
        """Report on the policy of a step beside the start. Returns entries of the summary."""
        file = self._folder / "start.json"  # without it trainer.report was false at the start
        start = read_object(file) if self._writes and file.exists() else None
        # The same secrets as at the start, although the limit may have been changed since.
        count = self._play.policy.processes.gather(start["games"] if start else None)[0]
        self._secrets = self._play.setup.test[:count] if count else self._secrets
        best, games = self.report("best", self._stages)
        change = self.compare(games) if step > 0 and count else {}
        if not self._writes:
            return best
        _write_games(self._folder / "best_games.jsonl", games, step)
        rows = [best] if start is None else [best, start]
        rules = self._play.setup.recipe.rules
        results = solver_results(
            self._play.setup.words.digest, self._secrets, rules.max_turns, rules.hard_mode
        )
        solvers = [{"player": name, **figures} for name, figures in results.items()]
        print(f"\n{report_table(rows, columns(), solvers)}", flush=True)
        return best if start is None else {**best, "start": start, "change": change or None}

    def compare(self, games: Sequence[Game]) -> dict[str, Any]:
        """What changed since the start. games: of the end, on the same secrets.

        Where both began each game with one word, and not the same, games that begin with the old
        one are played, too.
        """
        file = self._folder / "start_games.jsonl"
        before = StepLog(file).read() if self._writes else []
        before = self._play.policy.processes.gather(before)[0]
        pairs = [(record["won"], game.won) for record, game in zip(before, games, strict=True)]
        change = measure_change(self._secrets, pairs)
        old = {record["guesses"][0] for record in before}
        new = {game.turns[0].guess for game in games if game.turns}
        if len(old) == len(new) == 1 and old != new and None not in old:
            [opener] = old
            title = "report on the best with the old first guess"
            replays = self._play.play(self._secrets, title, opener=opener, check=self._check)
            share = sum(game.won for game in replays) / len(replays)
            change |= {"old_opener": opener, "win_rate_old_opener": share}
        return change

    def report(self, player: str, stages: Sequence[Stage]) -> tuple[dict[str, Any], list[Game]]:
        """Play the test secrets greedily. player: start or best. stages: of its model."""
        begin, setup = time.monotonic(), self._play.setup
        split = "all" if len(setup.test) == len(setup.words.answers) else "test"
        title = f"report on the {player}"
        games = self._play.play(self._secrets, title, check=self._check)
        seconds = time.monotonic() - begin
        with announce(f"{title}: judging {len(games)} games"):
            summary = summarise(
                games,
                setup.knowledge,
                player=player,
                split=split,
                rules=setup.recipe.rules,
                seconds=seconds,
                regret=setup.regret,
                rewards=setup.recipe.rewards,
            )
        summary["drawn"] = describe_drawing(0.0)
        self._play.spent[0] += time.monotonic() - begin - seconds
        return summary | {"lineage": describe_run_lineage(stages, setup)}, games


def _write_games(path: Path, games: Sequence[Game], step: int = 0) -> None:
    """Write the games of a report in the format of games.jsonl. step: the step of the model."""
    records = ({"step": step, "split": "test", **game_record(game)} for game in games)
    write_bytes(path, b"".join(map(json_bytes, records)))
