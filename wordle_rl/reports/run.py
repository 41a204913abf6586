"""Everything that a page says about one run, read from its folder.

A run may still train or have stopped. Shares are in 0..1, and intervals are 95 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wordle_rl.evaluation.boards import NOTES
from wordle_rl.evaluation.doctor import (
    LEAST_STEPS,
    Curves,
    describe_health,
    diagnose,
    numeric_settings,
)
from wordle_rl.evaluation.intervals import Z95, sign_test, standard_error
from wordle_rl.evaluation.solvers import MAX_TURNS, solver_results
from wordle_rl.game.players import title
from wordle_rl.policy.sampling import describe_drawing
from wordle_rl.runs.config import flatten, read_config
from wordle_rl.runs.files import StepLog, read_object
from wordle_rl.runs.folder import RunFolder, given_name

OPTIMUM_TITLE = "optimum (published, all 2,315 answers)"
START = "best checkpoint: step 0, the start"
WINS, GUESSES = "win_rate", "mean_guesses_with_losses"  # in a report, and as val/... in metrics
_MARKS = str.maketrans("✓-x", "012")
_CAUSES = 2  # that a page tells of why a run does not learn
_LONGEST = 120  # characters that are kept of an answer without a guess


class Estimate(NamedTuple):
    """A number with its interval, if that is known."""

    value: float
    low: float | None = None
    high: float | None = None


OPTIMUM = Estimate(3.421)  # mean guesses over all answers, with no loss


class Board(NamedTuple):
    """One game as it is shown."""

    secret: str
    won: bool
    # Of a turn: the guess, its marks (0 in place, 1 elsewhere, 2 absent, "" if rejected), a note
    # and the text of an answer without a guess.
    rows: list[tuple[str, str, str, str]]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Board:
        """record: from wordle_rl.evaluation.summary.game_record()."""
        rows = [(w, m.translate(_MARKS), "given", "") for w, m in record.get("clues_at_start", [])]
        columns = (record[name] for name in ("guesses", "feedback", "kinds", "texts"))
        for guess, marks, kind, text in zip(*columns, strict=True):
            quote = "" if guess else text[:_LONGEST]
            rows.append((guess or "", (marks or "").translate(_MARKS), NOTES[kind], quote))
        return cls(record["secret"], record["won"], rows)

    def guesses(self, max_turns: int) -> int:
        """Guesses that it took, one more than the turns if it was lost."""
        return min(len(self.rows), max_turns) if self.won else max_turns + 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one player did on some secrets."""

    label: str
    step: int = 0  # training steps that the player had seen
    measures: Mapping[str, Any]  # as in a report's summary
    boards: Sequence[Board] = ()  # empty where the games were not kept

    def estimate(self, name: str) -> Estimate:
        """A measure with its interval."""
        values = self.measures
        return Estimate(values[name], values.get(f"{name}_low"), values.get(f"{name}_high"))

    @property
    def max_turns(self) -> int:
        return self.measures.get("rules", {}).get("max_turns", MAX_TURNS)

    @property
    def first_boards(self) -> dict[str, Board]:
        """Secret -> its first game, in the order in which they were played."""
        boards: dict[str, Board] = {}
        for board in self.boards:
            boards.setdefault(board.secret, board)
        return boards


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as a page shows it."""

    folder: Path
    name: str
    manifest: Mapping[str, Any]
    settings: Mapping[str, str]  # of config.yaml
    metrics: pd.DataFrame  # a row for each step, which is the index
    validations: pd.DataFrame  # a row for each step that validated, and the measures of a Result
    validated: Mapping[int, Sequence[Board]]  # the games of each validation
    start: Result | None  # the reports of trainer.report, on the test secrets
    best: Result | None
    seconds: float  # that it ran, NaN if unknown
    trains: bool = False  # whether a process trains it now
    group: Mapping[str, Any] | None = None  # of the last step that validated, from groups.jsonl

    @property
    def reports(self) -> list[Result]:
        return [report for report in (self.start, self.best) if report]

    @property
    def missing(self) -> str:
        """A sentence on what the folder lacks, if anything."""
        if self.trains:
            return ""
        if not (self.folder / "summary.json").exists():
            return f"summary.json is missing: the run is {self.manifest['status']}."
        text = "There are no reports on both the start and the end (trainer.report=false)."
        return text if len(self.reports) < 2 else ""

    @property
    def validated_as(self) -> str:
        """How the words of validation games were chosen; "" if unknown."""
        return _describe_temperature(self.settings.get("trainer.validation_temperature"))

    @property
    def trained_as(self) -> str:
        """How the words of training games were chosen, or which player's they were."""
        if player := self.manifest.get("player"):
            return f"by {player}"
        return _describe_temperature(self.settings.get("sampling.temperature"))

    @property
    def diagnosis(self) -> list[str]:
        """What keeps the run from learning, the strongest first; empty after few steps."""
        curves = Curves(self.metrics.reset_index().to_dict("records"))
        if curves.steps < LEAST_STEPS:
            return []
        findings = diagnose(curves, numeric_settings(self.settings))
        lines = [f"{one.cause}: {one.seen}. To change: {one.change}." for one in findings[:_CAUSES]]
        return lines or [describe_health(curves)]

    @property
    def lineage(self) -> str:
        return next(
            (r.measures["lineage"] for r in self.reports[::-1] if "lineage" in r.measures), ""
        )

    def series(self, key: str) -> pd.Series:
        """Values of a metric by step, where it was logged."""
        values: Any = self.metrics.get(key, pd.Series(dtype=float))
        return values.astype(float).replace([np.inf, -np.inf], np.nan).dropna()


def read_run(folder: Path) -> Run:
    """Read a run. Raises FolderError for another folder, and for a damaged file."""
    run = RunFolder.open(folder)
    manifest, records = run.manifest(), run.log("metrics").read()
    metrics = pd.DataFrame(records).set_index("step").sort_index() if records else pd.DataFrame()
    step = _read_exported_step(folder)
    start = _read_report(folder, "start.json", "start_games.jsonl", 0, "before training")
    label = f"after step {step}" if step else START
    best = _read_report(folder, "summary.json", "best_games.jsonl", step, label)
    turns = max((one.max_turns for one in (start, best) if one), default=MAX_TURNS)
    games = defaultdict(list)
    for record in run.log("validation_games").records():
        games[record["step"]].append(Board.of(record))
    validations = _summarise_validations(metrics, games, turns)
    return Run(
        folder=folder,
        name=given_name(folder.resolve().name),
        manifest=manifest,
        settings=flatten(read_config(folder)),
        metrics=metrics,
        validations=validations,
        validated=games,
        start=start,
        best=best,
        seconds=run.seconds,
        trains=run.status == "running",
        group=run.log("groups").last(),
    )


def _describe_temperature(setting: str | None) -> str:
    return "" if setting is None else describe_drawing(float(setting))


def _read_exported_step(folder: Path) -> int:
    """The step of the model that the run wrote at its end; 0 without one."""
    end = folder / "summary.json"
    return (read_object(end).get("exported_step") or 0) if end.exists() else 0


def _read_report(folder: Path, file: str, games: str, step: int, label: str) -> Result | None:
    """A report on test secrets; None without one (trainer.report=false)."""
    if not (folder / file).exists():
        return None
    measures = read_object(folder / file)
    if WINS not in measures:
        return None
    boards = [Board.of(record) for record in StepLog(folder / games).records()]
    return Result(label=name_player(label, measures), step=step, measures=measures, boards=boards)


def name_player(label: str, measures: Mapping[str, Any]) -> str:
    """A label that says how the player's words were chosen. measures: as in a Result."""
    return f"{label} ({way})" if (way := measures.get("drawn")) else label


def _summarise_validations(
    metrics: pd.DataFrame, games: Mapping[int, Sequence[Board]], max_turns: int
) -> pd.DataFrame:
    """The measures of each validation by step, where its games were kept with all intervals."""
    frame = metrics.filter(regex="^val/")
    frame.columns = [name.removeprefix("val/").removeprefix("skill/") for name in frame.columns]
    ends = [f"{name}{end}" for name in (WINS, GUESSES) for end in ("", "_low", "_high")]
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, *ends])))
    frame = frame.dropna(subset=[WINS, GUESSES])
    for step in frame.index.intersection(list(games)):
        guesses = [board.guesses(max_turns) for board in games[step]]
        error = standard_error(guesses, [board.secret for board in games[step]])
        half, mean = Z95 * (error or np.nan), frame[GUESSES][step]
        frame.loc[step, [f"{GUESSES}_low", f"{GUESSES}_high"]] = mean - half, mean + half
    return frame


def solvers_of(run: Run, secrets: Sequence[str] | None = None) -> list[Result]:
    """The scripted players' results, by wins.

    secrets: that were played, None for all answers. Empty for other word lists or rules.
    """
    hard = any(one.measures.get("rules", {}).get("hard_mode") for one in run.reports)
    turns = max((one.max_turns for one in run.reports), default=MAX_TURNS)
    words = run.manifest.get("digests", {}).get("words")
    results = solver_results(words, secrets, turns, hard)
    return [Result(label=title(name), measures=measures) for name, measures in results.items()]


class Difference(NamedTuple):
    """What the second player did better than the first, secret by secret."""

    secrets: int
    wins: Estimate  # share of games
    guesses: Estimate  # below 0 for fewer
    only_first: int  # secrets of which the first won more games
    only_second: int
    p_value: float  # of equal win rates, an exact sign test over secrets


def difference(first: Result, second: Result) -> Difference | None:
    """Compare two players on the secrets that both played. None without any."""
    gains = (_means_by_secret(second) - _means_by_secret(first)).dropna()
    if gains.empty:
        return None
    minus, plus = int((gains.won < 0).sum()), int((gains.won > 0).sum())
    half = Z95 * gains.sem()  # NaN with one secret
    wins, guesses = (
        Estimate(mean, mean - half[name], mean + half[name]) for name, mean in gains.mean().items()
    )
    return Difference(len(gains), wins, guesses, minus, plus, sign_test(minus, plus))


def _means_by_secret(result: Result) -> pd.DataFrame:
    games = [
        (board.secret, float(board.won), board.guesses(result.max_turns)) for board in result.boards
    ]
    frame: Any = pd.DataFrame(games, columns=["secret", "won", "guesses"])
    return frame.groupby("secret").mean()
