"""Everything that a page says about one run, read from its folder.

A folder may be damaged, of a run that was interrupted, or from somebody else. What cannot be read
is named in `missing`, and the rest is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wordle_rl.reports.boards import Board, read_games
from wordle_rl.reports.results import (
    MAX_TURNS,
    Estimate,
    Result,
    from_report,
    from_validation,
    guesses_of,
    number,
    summarise_guesses,
)
from wordle_rl.runs.folder import RunFolder, given_name
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries, read_object

STAGES = "wordle_rl.json"  # in a model's folder
_STAGE = {
    **dict.fromkeys(("algorithm", "player", "protocol", "prompt", "form", "start"), str | None),
    **dict.fromkeys(("secrets", "held_out"), int),
}
_Read = TypeVar("_Read")


class Setting(NamedTuple):
    """A setting of a run that differs from the default."""

    key: str
    default: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as a page shows it."""

    folder: Path
    name: str
    manifest: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]  # a record for each step, ascending
    validations: Mapping[int, tuple[Estimate, Estimate]]  # step -> wins and mean guesses
    validation_games: int  # of the last validation whose games were written
    summary: Mapping[str, Any]  # empty until the run has finished
    start: Result | None  # both on the same kind of secrets
    end: Result | None
    secrets: str  # that start and end played: test, all or validation
    other: Result | None  # the report on the start, if there is none on the end
    stages: Sequence[Mapping[str, Any]]
    settings: Sequence[Setting] | None  # None where they cannot be read
    missing: Sequence[str]  # a sentence each

    @property
    def max_turns(self) -> int:
        result = self.end or self.start or self.other
        return result.max_turns if result else MAX_TURNS

    @property
    def hard_mode(self) -> bool:
        return any(r.hard_mode for r in (self.end, self.start, self.other) if r)

    @property
    def exported_step(self) -> int | None:
        return _step(self.summary)

    @property
    def lineage(self) -> str:
        return next((r.lineage for r in (self.end, self.start, self.other) if r and r.lineage), "")

    @property
    def teachers(self) -> set[str]:
        """The players that the model imitated at some time."""
        return {str(stage["player"]) for stage in self.stages if stage.get("player")}

    @property
    def words_digest(self) -> str | None:
        return self.manifest.get("digests", {}).get("words")

    @property
    def seconds(self) -> float | None:
        """Wall-clock seconds from the start to the last change of its status."""
        try:
            begin, end = (
                datetime.fromisoformat(str(self.manifest[key]))
                for key in ("started", "status_since")
            )
            return (end - begin).total_seconds()
        except (KeyError, ValueError, TypeError):
            return None

    def series(self, key: str) -> tuple[list[float], list[float]]:
        """Steps and values of a metric where it was logged."""
        points = [
            (float(record["step"]), value)
            for record in self.metrics
            if (value := number(record.get(key))) is not None
        ]
        return [step for step, _ in points], [value for _, value in points]


def mapping(value: object) -> Mapping[str, Any]:
    """An entry that should be an object; empty for anything else."""
    return value if isinstance(value, Mapping) else {}


class _Reader:
    """Reads parts of a folder, and notes what cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.missing = folder, list[str]()

    def read(self, what: Callable[[], _Read], default: _Read, absent: str = "") -> _Read:
        """absent: the sentence for a missing file."""
        try:
            return what()
        except FileNotFoundError:
            self.note(absent)
        except (FolderError, OSError) as error:
            self.note(f"Not readable: {str(error).replace(f'{self.folder}/', '')}.")
        return default

    def note(self, sentence: str) -> None:
        if sentence:
            self.missing.append(sentence)


def read_run(folder: Path, settings: Sequence[Setting] | None = None) -> Run:
    """Read a run. Raises RunFolderError for a folder without a readable manifest.json.

    settings: that differ from the default, None where they are unknown.
    """
    opened = RunFolder.open(folder)
    manifest, reader = opened.manifest(), _Reader(folder)
    status = manifest.get("status", "unknown")
    unfinished = f"summary.json is missing: the run is {status}, so nothing says how it ended."
    summary = reader.read(lambda: read_object(folder / "summary.json"), {}, unfinished)
    metrics = reader.read(lambda: opened.metrics_log().read(), [])
    metrics = sorted(
        (record for record in metrics if number(record["step"]) is not None),
        key=lambda record: record["step"],
    )
    if not metrics:
        reader.note("metrics.jsonl is missing or empty, so there are no curves.")
    before, after = _read_reports(reader, summary)
    tested = bool(before and after)
    turns = max((r.max_turns for r in (before, after) if r), default=MAX_TURNS)
    validations, played, first, last = _read_validations(reader, metrics, _step(summary), turns)
    if tested:
        start, end, secrets = before, after, str(summary.get("split", "test"))
    else:
        start, end, secrets = first, last, "validation"
        reader.note(
            "There are no reports on the test secrets from both the start and the end "
            "(trainer.report), so this page compares validations."
        )
    return Run(
        folder=folder, name=given_name(folder.resolve().name), manifest=manifest,
        metrics=metrics, validations=validations, validation_games=played, summary=summary,
        start=start, end=end,
        secrets=secrets, other=None if tested else before or after,
        stages=reader.read(lambda: _read_stages(opened), []), settings=settings,
        missing=tuple(reader.missing),
    )  # fmt: skip


def _read_reports(
    reader: _Reader, summary: Mapping[str, Any]
) -> tuple[Result | None, Result | None]:
    """The reports on the start and on the exported model."""
    folder = reader.folder
    games = {
        name: reader.read(lambda name=name: [*read_games(folder / f"{name}_games.jsonl")], [])
        for name in ("start", "best")
    }

    def before() -> Result:
        path = folder / "start.json"
        found = read_object(path)
        boards = games["start"]
        return from_report(path, found, label="before training", step=0, boards=boards)

    def after() -> Result | None:
        if "win_rate" not in summary:
            return None
        step = _step(summary) or 0
        label = f"after step {step}" if step else "best checkpoint: step 0, the start"
        path, boards = folder / "summary.json", games["best"]
        return from_report(path, summary, label=label, step=step, boards=boards)

    found = (reader.read(before, None), reader.read(after, None))
    for name, result in zip(("start", "best"), found, strict=True):
        if result and not result.boards:
            reader.note(f"{name}_games.jsonl is missing, so some test games cannot be shown.")
    return found


def _read_validations(
    reader: _Reader, metrics: Sequence[Mapping[str, Any]], exported: int | None, max_turns: int
) -> tuple[dict[int, tuple[Estimate, Estimate]], int, Result | None, Result | None]:
    """Wins and guesses of each validation, and the results of the first and of the best or last.

    The number is of the games in the last one that was written.
    """
    records = {r["step"]: r for r in metrics if number(r.get("val/win_rate")) is not None}
    last: int = max(records, default=0)
    if exported is not None and exported in records:
        last = exported
    needed: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    kept: defaultdict[int, list[Board]] = defaultdict(list)

    def read() -> None:
        for board in read_games(reader.folder / "validation_games.jsonl"):
            needed[board.step].append((guesses_of(board, max_turns), board.secret))
            if board.step in (min(records, default=0), last):
                kept[board.step].append(board)

    reader.read(read, None)
    if lost := sorted(records.keys() - needed.keys()):
        reader.note(
            f"validation_games.jsonl has no games of {len(lost)} of {len(records)} validations, "
            f"the first at step {lost[0]}, so these have no interval."
        )
    found = {
        step: summarise_guesses(
            [guesses for guesses, _ in games], [secret for _, secret in games], max_turns
        )
        for step, games in sorted(needed.items())
    }
    played = len(needed[max(needed)]) if needed else 0
    if not records:
        reader.note("No validation was logged.")
        return found, played, None, None
    first = min(records)
    labels = {first: "before training" if first == 0 else f"after step {first}"}
    ends = [
        from_validation(
            records[step], kept[step], label=labels.get(step, f"after step {step}"),
            max_turns=max_turns,
        )
        for step in (first, last)
    ]  # fmt: skip
    if last != first:
        return found, played, ends[0], ends[1]
    same = None
    if exported == first and ends[0]:
        same = replace(ends[0], label="best checkpoint: step 0, the start")
    return found, played, ends[0], same


def _read_stages(run: RunFolder) -> list[dict[str, Any]]:
    """The runs that made the model, oldest first. Raises FolderError for other types than ours."""
    models = [run.path / "model", *sorted(run.checkpoints.glob("*/model"), reverse=True)]
    path = next((found for model in models if (found := model / STAGES).is_file()), None)
    if path is None:
        manifest = run.manifest()
        return [{"run": run.path.name, **{k: manifest[k] for k in _STAGE if k in manifest}}]
    record = read_object(path)
    check_all_entries(path, record, {"stages": list[dict]})
    for stage in record["stages"]:
        check_all_entries(path, stage, {"run": str})
        check_entries(path, stage, _STAGE)
    return record["stages"]


def _step(summary: Mapping[str, Any]) -> int | None:
    step = number(summary.get("exported_step"))
    return None if step is None else int(step)
