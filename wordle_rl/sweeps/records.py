"""The JSON files of a study and its trials; an error about a damaged one is one line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import StepLog, write_json
from wordle_rl.runs.instantiate import ConfigError, check_type
from wordle_rl.runs.paths import TRAIN
from wordle_rl.runs.untrusted import (
    FolderError,
    check_all_entries,
    check_entries,
    read_json,
    read_object,
)

OBJECTIVE = "val_win_rate"  # of summary.json: validation wins of the best checkpoint
TESTED = ("win_rate", "mean_guesses_with_losses")  # of summary.json: its report on the test secrets
TEST_WINS, TEST_GUESSES = (f"test_{name}" for name in TESTED)  # the same, among a trial's figures
LINEAGE = "lineage"  # of summary.json: which secrets each stage of the model trained on
CURVE, GAMES, SECONDS, SPREAD = "val/win_rate", "total/games", "time/step", "groups/zero_spread"


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """study.json: what `python -m wordle_rl.study` needs to find a study again."""

    name: str
    question: str
    storage: str | None  # without its password; None for sqlite in the same folder
    command: list[str]  # that started it
    identity: dict[str, Any]
    analysis: dict[str, Any] = field(default_factory=dict)  # settings of its comparisons

    @classmethod
    def read(cls, folder: Path) -> StudyRecord:
        """Raises FileNotFoundError without the file, FolderError for a damaged one."""
        path = folder / "study.json"
        try:
            found = read_object(path)
            check_all_entries(path, found, _KINDS)
            check_entries(f"{path}: identity", found["identity"], {"default": dict | None})
            check_entries(path, found, {"analysis": dict})
        except FolderError as error:
            raise FolderError(
                f"{error}; remove it, and the study's command, {TRAIN} -m sweep=..., "
                "writes it again"
            ) from None
        return cls(**{name: found[name] for name in _KINDS}, analysis=found.get("analysis", {}))

    def write(self, folder: Path) -> None:
        write_json(folder / "study.json", asdict(self))


_KINDS: dict[str, Any] = {
    "name": str, "question": str, "storage": str | None, "command": list[str], "identity": dict,
}  # fmt: skip


def read_stages(path: Path) -> list[list[str]]:
    """The overrides of each stage of a trial. Raises FolderError."""
    found = read_json(path)
    try:
        check_type(f"{path}: the stages", found, list[list[str]])
    except ConfigError as error:
        raise FolderError(str(error)) from None
    if not found:
        raise FolderError(f"{path}: holds no stage")
    return found


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a run. Raises FileNotFoundError without the file, else FolderError."""
    summary = read_object(path)
    check_entries(path, summary, dict.fromkeys((OBJECTIVE, *TESTED, "best_step"), float | None))
    check_entries(path, summary, {LINEAGE: str})
    return summary


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a run's steps, oldest first. Raises FolderError."""
    records = StepLog(path).read()
    kinds: dict[str, Any] = dict.fromkeys((CURVE, GAMES, SECONDS, SPREAD), float | None)
    for record in records:
        check_entries(f"{path} step {record['step']}", record, kinds)
    return records
