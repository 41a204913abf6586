"""The reports of a run: greedy games on the test secrets before the first step and after the last.

The last report is printed beside the first one, with boards of the same secrets. With several
processes all of them play, and the first one writes and prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wordle_rl.evaluation.tables import describe_change, report_table, show_pairs
from wordle_rl.game.rules import Game
from wordle_rl.policy.stages import Stage
from wordle_rl.runs.files import write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.terminal import columns, shows_colours
from wordle_rl.training.held_out_play import HeldOutPlay
from wordle_rl.training.outcome import report
from wordle_rl.training.start_report import (
    read_start_games,
    read_start_report,
    write_report_games,
)

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
        stages = self._stages[:-1]
        summary, games = report("start", self._play, self._secrets, stages, self._check)
        if self._writes:
            write_report_games(self._games, games)
            write_json(self._start, summary)

    def end(self, step: int) -> dict[str, Any]:
        """Report on the policy beside the start. Returns entries of the run's summary.

        step: the one whose checkpoint the policy is from.
        """
        start = read_start_report(self._start) if self._writes else None
        self._play_as_many_as(start)
        best, games = report("best", self._play, self._secrets, self._stages, self._check)
        if not self._writes:
            return best
        write_report_games(self._best_games, games, step)
        if start is None:
            print(f"\n{report_table([best], columns())}", flush=True)
            return best
        print(f"\n{report_table([best, start], columns())}", flush=True)
        if step == 0:
            print("\nThe best checkpoint is the start: both rows show the same model.", flush=True)
        else:
            self._compare(games, step)
        return {**best, "start": start}

    def _play_as_many_as(self, start: Mapping[str, Any] | None) -> None:
        """Take the secrets of the report on the start, for a limit that was changed since."""
        played = self._play.policy.processes.gather(0 if start is None else start["games"])[0]
        if 1 <= played <= len(self._play.setup.test):
            self._secrets = self._play.setup.test[:played]

    def _compare(self, games: Sequence[Game], step: int) -> None:
        """Print the paired gain, and games of before and after."""
        setup, titles = self._play.setup, ("before", f"after step {step}")
        words, rules = setup.recipe.words, setup.recipe.rules
        earlier = read_start_games(self._games, self._secrets, words.allowed_set, rules)
        if not earlier:
            return
        pairs = list(zip(earlier, games, strict=True))
        print(f"\n{describe_change(pairs)}", flush=True)
        if shown := setup.trainer.show_games:
            boards = show_pairs(pairs, shown, titles, colour=shows_colours())
            print(f"\n{boards}", flush=True)
