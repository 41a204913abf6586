"""Everything that a page says about one run, read from its folder.

A run may still train, have stopped, or have lost files. What cannot be read is named in `missing`,
and the rest is shown. Shares are in 0..1, and intervals are 95 %.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from wordle_rl.evaluation.intervals import Z95, sign_test, standard_error, win_interval
from wordle_rl.runs.config import read_config
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.folder import RunFolder, given_name

MAX_TURNS = 6  # where a report does not say
START = "best checkpoint: step 0, the start"
_MARKS = str.maketrans("✓-x", "012")
_NOTES = {
    "not_a_word": "not a word",
    "breaks_hard_mode": "ignores a clue",
    "unparsable": "no guess",
}
_LONGEST = 120  # characters that are kept of an answer without a guess
_SAME = ("output_dir", "resume", "restart")  # settings that say nothing about a run
_Read = TypeVar("_Read")


class Estimate(NamedTuple):
    """A number with its interval, if that is known."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_mean(cls, values: Sequence[float], secrets: Sequence[str]) -> Estimate:
        """A mean over games. secrets: one per game; games on one secret are not independent."""
        mean, error = sum(values) / len(values), standard_error(values, secrets)
        return cls(mean) if error is None else cls(mean, mean - Z95 * error, mean + Z95 * error)


class Board(NamedTuple):
    """One game as it is shown."""

    secret: str
    won: bool
    # Of a turn: the guess, its marks (0 in place, 1 elsewhere, 2 absent, "" if rejected), a note
    # and the text of an answer without a guess.
    rows: list[tuple[str, str, str, str]]

    def guesses(self, max_turns: int) -> int:
        """Guesses that it took, one more than the turns if it was lost."""
        return min(len(self.rows), max_turns) if self.won else max_turns + 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one player did on some secrets."""

    label: str
    step: int = 0  # training steps that the player had seen
    games: int
    wins: Estimate  # share of games
    guesses: Estimate  # mean, a lost game as one more than the turns
    measures: Mapping[str, Any] = field(default_factory=dict)  # of a report or a validation
    histogram: Mapping[str, int] = field(default_factory=dict)  # guesses or "lost" -> games
    boards: Sequence[Board] = ()  # empty where the games were not written
    lineage: str = ""
    max_turns: int = MAX_TURNS
    hard_mode: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as a page shows it."""

    folder: Path
    name: str
    manifest: Mapping[str, Any]
    metrics: pd.DataFrame  # a row for each step, which is the index
    validations: pd.DataFrame  # of step: wins, guesses, and each with _low and _high
    validation_games: int  # of the last validation whose games were written
    summary: Mapping[str, Any]  # empty until the run has finished
    start: Result | None  # both on the same kind of secrets
    best: Result | None
    secrets: str  # that start and best played: test, all or validation
    reports: Sequence[Result]  # on test secrets
    stages: Sequence[Mapping[str, Any]]  # the runs that made the model, oldest first
    settings: Mapping[str, str] | None  # of config.yaml, None where it cannot be read
    missing: Sequence[str]  # a sentence each

    @property
    def results(self) -> list[Result]:
        return [result for result in (self.start, self.best) if result]

    @property
    def lineage(self) -> str:
        return next((r.lineage for r in (*self.reports[::-1], *self.results) if r.lineage), "")

    @property
    def max_turns(self) -> int:
        return next((r.max_turns for r in (*self.results, *self.reports)), MAX_TURNS)

    @property
    def teachers(self) -> set[str]:
        """The players that the model imitated at some time."""
        return {str(stage["player"]) for stage in self.stages if stage.get("player")}

    @property
    def seconds(self) -> float | None:
        """Wall-clock seconds from the start to the last change of its status."""
        try:
            begin, end = (self.manifest[key] for key in ("started", "status_since"))
            return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
        except (KeyError, ValueError, TypeError):
            return None

    def series(self, key: str) -> pd.Series:
        """Values of a metric by step, where it was logged."""
        values: Any = self.metrics.get(key, pd.Series(dtype=float))
        numbers: Any = pd.to_numeric(values, errors="coerce")
        return numbers.replace([np.inf, -np.inf], np.nan).dropna()


def read_run(folder: Path) -> Run:
    """Read a run. Raises RunFolderError for a folder without a readable manifest.json."""
    manifest, missing = RunFolder.open(folder).manifest(), list[str]()

    def read(what: Callable[[], _Read], default: _Read, absent: str = "") -> _Read:
        try:
            return what()
        except FileNotFoundError:
            missing.extend([absent] * bool(absent))
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            text = " ".join(str(error).replace(f"{folder}/", "").split())
            missing.append(f"Not readable: {text}.")
        return default

    status = manifest.get("status", "unknown")
    summary = read(
        lambda: _read_json(folder / "summary.json"), {},
        f"summary.json is missing: the run is {status}, so nothing says how it ended.",
    )  # fmt: skip
    metrics = read(lambda: _read_metrics(folder / "metrics.jsonl"), pd.DataFrame())
    if metrics.empty:
        missing.append("metrics.jsonl is missing or empty, so there are no curves.")
    exported = summary.get("exported_step") or 0
    before = read(lambda: _read_report(folder, "start", 0, "before training"), None)
    label = f"after step {exported}" if exported else START
    after = read(lambda: _read_report(folder, "summary", exported, label), None)
    missing += [
        f"{name}_games.jsonl is missing, so some test games cannot be shown."
        for name, result in (("start", before), ("best", after))
        if result and not result.boards
    ]
    reports = [result for result in (before, after) if result]
    turns = max((result.max_turns for result in reports), default=MAX_TURNS)
    games = read(lambda: _read_validation_games(folder), {})
    validations = _summarise_validations(metrics, games, turns)
    if before and after:
        start, best, secrets = before, after, str(summary.get("split", "test"))
    else:
        start, best = _compare_validations(metrics, validations, games, summary, turns)
        secrets = "validation"
        missing.append(
            "There are no reports on the test secrets from both the start and the end "
            "(trainer.report), so this page compares validations."
        )
        if validations.empty:
            missing.append("No validation was logged.")
    if lost := [step for step in validations.index if step not in games]:
        missing.append(
            f"validation_games.jsonl has no games of {len(lost)} of {len(validations)} "
            f"validations, the first at step {lost[0]}, so these have no interval."
        )
    return Run(
        folder=folder, name=given_name(folder.resolve().name), manifest=manifest, metrics=metrics,
        validations=validations, validation_games=len(games[max(games)]) if games else 0,
        summary=summary, start=start, best=best, secrets=secrets, reports=reports,
        stages=read(lambda: _read_stages(folder, manifest), []),
        settings=read(lambda: flat_settings(read_config(folder)), None), missing=missing,
    )  # fmt: skip


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a JSON object")
    return found


def _read_metrics(path: Path) -> pd.DataFrame:
    records = StepLog(path).read()
    return pd.DataFrame(records).set_index("step").sort_index() if records else pd.DataFrame()


def _read_report(folder: Path, name: str, step: int, label: str) -> Result | None:
    """The report on the start or, in summary.json, on the best checkpoint; None without one."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    found = _read_json(path)
    if "win_rate" not in found:  # trainer.report=false
        return None
    rules = found.get("rules", {})
    mean = "mean_guesses_with_losses"
    games = folder / f"{'start' if name == 'start' else 'best'}_games.jsonl"
    try:
        wins, guesses = (
            Estimate(float(found[key]), found[f"{key}_low"], found[f"{key}_high"])
            for key in ("win_rate", mean)
        )
    except KeyError as error:
        raise ValueError(f"{path}: {error} is missing") from None
    return Result(
        label=label, step=step, games=found["games"], wins=wins, guesses=guesses,
        measures=found, histogram=found.get("histogram", {}), lineage=found.get("lineage", ""),
        max_turns=rules.get("max_turns", MAX_TURNS), hard_mode=rules.get("hard_mode", False),
        boards=[_board(record) for record in StepLog(games).records()],
    )  # fmt: skip


def _board(record: Mapping[str, Any]) -> Board:
    texts = record.get("texts", [])
    rows = [(w, m.translate(_MARKS), "given", "") for w, m in record.get("clues_at_start", [])]
    turns = zip(record["guesses"], record["feedback"], record["kinds"], strict=True)
    for i, (guess, marks, kind) in enumerate(turns):
        text = texts[i][:_LONGEST] if guess is None and i < len(texts) else ""
        rows.append((guess or "", (marks or "").translate(_MARKS), _NOTES.get(kind, ""), text))
    return Board(record["secret"], record["won"], rows)


def _read_validation_games(folder: Path) -> dict[int, list[Board]]:
    games = defaultdict(list)
    for record in StepLog(folder / "validation_games.jsonl").records():
        games[record["step"]].append(_board(record))
    return dict(games)


def _summarise_validations(
    metrics: pd.DataFrame, games: Mapping[int, Sequence[Board]], max_turns: int
) -> pd.DataFrame:
    """Wins and mean guesses of each validation that was logged, with intervals of its games."""
    rows = {}
    keys = ["val/win_rate", "val/mean_guesses_with_losses"]
    logged = metrics[keys].dropna() if set(keys) <= {*metrics.columns} else metrics[:0]
    for step, rate, mean in logged.itertuples():
        rows[step] = {"wins": rate, "guesses": mean}
        if played := games.get(step):
            wins, guesses = summarise(
                [board.guesses(max_turns) for board in played],
                [board.secret for board in played], max_turns,
            )  # fmt: skip
            rows[step] |= {"wins_low": wins.low, "wins_high": wins.high}
            if guesses.low is not None and guesses.high is not None:
                # A retry uses no turn, so a logged mean may differ from the boards' by a constant.
                shift = mean - guesses.value
                rows[step] |= {"guesses_low": guesses.low + shift,
                               "guesses_high": guesses.high + shift}  # fmt: skip
    columns = ["wins", "wins_low", "wins_high", "guesses", "guesses_low", "guesses_high"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=None).reindex(columns=columns)


def _compare_validations(
    metrics: pd.DataFrame, validations: pd.DataFrame, games: Mapping[int, Sequence[Board]],
    summary: Mapping[str, Any], max_turns: int,
) -> tuple[Result | None, Result | None]:  # fmt: skip
    """The results of the first validation, and of the exported step's or else the last one."""
    if validations.empty:
        return None, None

    def result(step: int) -> Result:
        row: Any = {k: None if pd.isna(v) else float(v) for k, v in validations.loc[step].items()}
        measures = {
            key.removeprefix("val/").removeprefix("skill/"): value
            for key, value in metrics.loc[step].items()
            if str(key).startswith("val/") and not pd.isna(value)
        }
        boards = games.get(step, ())
        counts = Counter(board.guesses(max_turns) for board in boards)
        histogram = {str(turn): counts[turn] for turn in range(1, max_turns + 1)}
        return Result(
            label=f"after step {step}" if step else "before training", step=step,
            games=len(boards), measures=measures, boards=boards, max_turns=max_turns,
            histogram={**histogram, "lost": counts[max_turns + 1]} if boards else {},
            wins=Estimate(*(row[f"wins{end}"] for end in ("", "_low", "_high"))),
            guesses=Estimate(*(row[f"guesses{end}"] for end in ("", "_low", "_high"))),
        )  # fmt: skip

    exported, first = summary.get("exported_step", -1), int(validations.index[0])
    last = int(exported if exported in validations.index else validations.index[-1])
    if last != first:
        return result(first), result(last)
    return result(first), replace(result(first), label=START) if exported == first else None


def summarise(
    needed: Sequence[int], secrets: Sequence[str], max_turns: int
) -> tuple[Estimate, Estimate]:
    """Wins and mean guesses. needed: guesses of each game, max_turns + 1 for a lost one."""
    won = [float(guesses <= max_turns) for guesses in needed]
    wins = Estimate(sum(won) / len(won), *win_interval(won, secrets))
    return wins, Estimate.of_mean([float(guesses) for guesses in needed], secrets)


def _read_stages(folder: Path, manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    models = [folder, *sorted((folder / "checkpoints").glob("*"), reverse=True)]
    found = (path for model in models if (path := model / "model" / "wordle_rl.json").is_file())
    if (path := next(found, None)) is None:
        return [{**manifest, "run": folder.name}]
    return _read_json(path)["stages"]


def flat_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Every single value of a resolved config by its key, as it is written on the command line."""

    def walk(part: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
        for name, value in part.items():
            if isinstance(value, Mapping) and value:
                yield from walk(value, f"{prefix}{name}.")
            elif prefix or name not in _SAME:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                yield f"{prefix}{name}", text

    return dict(walk(config, ""))


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
    one, other = _by_secret(first), _by_secret(second)
    shared = [secret for secret in one if secret in other]
    if not shared:
        return None
    gains, saved = (
        [other[secret][i] - one[secret][i] for secret in shared] for i in range(2)
    )  # fmt: skip
    lost, won = sum(gain < 0 for gain in gains), sum(gain > 0 for gain in gains)
    return Difference(
        len(shared), Estimate.of_mean(gains, shared), Estimate.of_mean(saved, shared), lost, won,
        sign_test(lost, won),
    )  # fmt: skip


def _by_secret(result: Result) -> dict[str, tuple[float, float]]:
    """Secret -> share of its games that were won, and mean guesses with losses."""
    found = defaultdict(list)
    for board in result.boards:
        found[board.secret].append((float(board.won), float(board.guesses(result.max_turns))))
    return {
        secret: (sum(w for w, _ in games) / len(games), sum(g for _, g in games) / len(games))
        for secret, games in found.items()
    }


def first_boards(result: Result) -> dict[str, Board]:
    """Secret -> its first game, in the order in which they were played."""
    found: dict[str, Board] = {}
    for board in result.boards:
        found.setdefault(board.secret, board)
    return found
