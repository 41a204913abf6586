"""The reports of a run: greedy games on the test secrets before the first step and after the last.

The last report is printed beside the first one, with boards of the same secrets. With several
processes all of them play, and the first one writes and prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.boards import show_pairs
from wordle_rl.evaluation.summary import game_record, summarise
from wordle_rl.evaluation.tables import describe_change, report_table
from wordle_rl.game.rules import Game, GameStatus, Rules
from wordle_rl.policy.lineage import Stage
from wordle_rl.runs.files import StepLog, json_bytes, read_object, write_bytes, write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.terminal import columns, shows_colours
from wordle_rl.training.experiment import describe_run_lineage
from wordle_rl.training.progress import announce
from wordle_rl.training.validation import HeldOutPlay

_SMALL = 20_000_000  # parameters below which a model plays all test secrets in seconds
_FEWER = 64  # secrets for the others


def choose_report_limit(asked: int | None, parameters: int) -> int | None:
    """How many test secrets the reports play at most, None for all.

    asked: trainer.report_limit. parameters: of the model.
    """
    return _FEWER if asked is None and parameters >= _SMALL else asked


class RunReports:
    """Plays the test secrets, and shows what training changed."""

    def __init__(
        self,
        play: HeldOutPlay,
        folder: RunFolder,
        stages: Sequence[Stage],
        check: Callable[[], None],
        *,
        writes: bool,
    ) -> None:
        """stages: of the model that the run makes, the run itself last."""
        self._play, self._stages, self._check, self._writes = play, stages, check, writes
        asked = play.setup.trainer.report_limit
        limit = choose_report_limit(asked, play.policy.num_parameters[1])
        self._secrets = play.setup.test[:limit]
        self._start, self._games = folder.path / "start.json", folder.path / "start_games.jsonl"
        self._best_games = folder.path / "best_games.jsonl"

    def begin(self) -> None:
        """Report on the start, in two files."""
        many, test = len(self._secrets), len(self._play.setup.test)
        if self._writes and many < test:
            print(f"the reports play {many} of {test} secrets (trainer.report_limit)", flush=True)
        if self._writes:
            print(f"the start plays {many} test secrets, for the report at the end", flush=True)
        summary, games = self.report("start", self._stages[:-1])
        if self._writes:
            _write_games(self._games, games)
            write_json(self._start, summary)

    def end(self, step: int) -> dict[str, Any]:
        """Report on the policy beside the start. Returns entries of the run's summary.

        step: the one whose checkpoint the policy is from.
        """
        # Without the file trainer.report was false at the start.
        start = read_object(self._start) if self._writes and self._start.exists() else None
        # The same secrets as at the start, although the limit may have been changed since.
        played = self._play.policy.processes.gather(start["games"] if start else None)[0]
        self._secrets = self._play.setup.test[:played] if played else self._secrets
        best, games = self.report("best", self._stages)
        if not self._writes:
            return best
        _write_games(self._best_games, games, step)
        rows = [best] if start is None else [best, start]
        print(f"\n{report_table(rows, columns())}", flush=True)
        if start is None:
            return best
        if step == 0:
            print("\nThe best checkpoint is the start: both rows show the same model.", flush=True)
        else:
            self._compare(games, step)
        return {**best, "start": start}

    def report(self, player: str, stages: Sequence[Stage]) -> tuple[dict[str, Any], list[Game]]:
        """Play the test secrets greedily. Returns the summary and the games.

        player: start or best. stages: of the model that plays.
        """
        begin, setup = time.monotonic(), self._play.setup
        split = "all" if len(setup.test) == len(setup.words.answers) else "test"
        what = f"report on the {player}"
        games = self._play.play(self._secrets, f"{what}, {split} secrets", check=self._check)
        seconds = time.monotonic() - begin
        with announce(f"{what}: judging {len(games)} games"):
            summary = summarise(
                games, setup.knowledge, player=player, split=split, rules=setup.recipe.rules,
                seconds=seconds, regret=setup.regret, rewards=setup.recipe.rewards,
            )  # fmt: skip
        return summary | {"lineage": describe_run_lineage(stages, setup)}, games

    def _compare(self, games: Sequence[Game], step: int) -> None:
        """Print the paired gain, and games of before and after."""
        setup, titles = self._play.setup, ("before", f"after step {step}")
        earlier = read_games(self._games, setup.words.allowed_set, setup.recipe.rules)
        if [game.secret for game in earlier] != list(self._secrets):
            return
        pairs = list(zip(earlier, games, strict=True))
        print(f"\n{describe_change(pairs)}", flush=True)
        if shown := setup.trainer.show_games:
            boards = show_pairs(pairs, shown, titles, colour=shows_colours())
            print(f"\n{boards}", flush=True)


def _write_games(path: Path, games: Sequence[Game], step: int = 0) -> None:
    """Write the games of a report in the format of games.jsonl. step: the step of the model."""
    records = ({"step": step, "split": "test", **game_record(game)} for game in games)
    write_bytes(path, b"".join(map(json_bytes, records)))


def read_games(path: Path, allowed: Container[str], rules: Rules) -> list[Game]:
    """The games of a report, played again. None without the file, or if the rules were others."""
    games = []
    for record in StepLog(path).read():
        game = Game(record["secret"], allowed, rules)
        try:
            for guess, reason in zip(record["guesses"], record["reasons"], strict=True):
                game.play(guess, reason=reason)
        except ValueError:  # the game would have been over
            return []
        if game.status is GameStatus.PLAYING:  # its time was up, or its context full
            game.forfeit(GameStatus(record["status"]))
        if game.status != record["status"]:
            return []
        games.append(game)
    return games


def describe_idle_groups(summary: dict[str, Any]) -> str | None:
    """One line about how many groups of a run taught nothing, None if each taught something."""
    groups, idle, skipped, replaced = (
        int(summary[f"total_{name}"])
        for name in ("groups", "zero_spread_groups", "skipped_groups", "resampled_groups")
    )
    if not idle:
        return None
    line = f"{idle:,} of {groups:,} groups ({100 * idle / groups:.1f} %) taught nothing"
    parts = {"skipped": skipped, "replaced by new ones": replaced}
    told = " and ".join(f"{count:,} were {done}" for done, count in parts.items() if count)
    return f"{line}: their rewards had no spread" + (f"; {told}" if told else "")


def describe_seconds(summary: dict[str, Any], total: float, *, resumed: bool) -> str:
    """One line about how long a run took, from its summary. total: seconds of this process."""
    training, reports = (round(summary.get(f"seconds_{p}", 0)) for p in ("training", "reports"))
    rest = max(round(total) - training - reports, 0)
    since = " since the resume" if resumed else ""
    return (
        f"took {total:.0f} s{since}: {training} s of training and validation, "
        f"{reports} s of reports, {rest} s of loading and saving"
    )
