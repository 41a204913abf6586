"""The JSON files of a study and its trials: a damaged one is named in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import RunFolderError, StepLog, write_json

OBJECTIVE = "val_win_rate"  # of summary.json: validation wins of the best checkpoint
TESTED = ("win_rate", "mean_guesses_with_losses")  # of summary.json: its report on the test secrets
CURVE, GAMES, SECONDS, SPREAD = "val/win_rate", "total/games", "time/step", "groups/zero_spread"


@dataclass(frozen=True, kw_only=True)
class About:
    """study.json: what python -m wordle_rl.study needs to find a study again."""

    name: str
    question: str
    storage: str | None  # without its password; None for sqlite in the same folder
    command: list[str]  # that began it
    identity: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> About:
        """Raises FileNotFoundError without the file, RunFolderError for a damaged one."""
        path = folder / "study.json"
        try:
            found = _object(path)
            for name, (kind, fits) in _ABOUT.items():
                if name not in found:
                    raise RunFolderError(f"{path}: {name} is missing")
                if not fits(found[name]):
                    raise RunFolderError(f"{path}: {name} must be {kind}")
            if not isinstance(found["identity"].get("default"), dict | None):
                raise RunFolderError(f"{path}: identity.default must be an object or null")
        except RunFolderError as error:
            raise RunFolderError(
                f"{error}; remove it, and the study's command, python train.py -m sweep=..., "
                "writes it again"
            ) from None
        return cls(**{name: found[name] for name in _ABOUT})

    def write(self, folder: Path) -> None:
        write_json(folder / "study.json", asdict(self))


def read_stages(path: Path) -> list[list[str]]:
    """The overrides of a trial's stages. Raises RunFolderError."""
    found = _parsed(path)
    if not isinstance(found, list) or not found or not all(map(_is_texts, found)):
        raise RunFolderError(f"{path}: must be a list with the overrides of each stage")
    return found


def read_summary(path: Path) -> dict[str, Any]:
    """What a run wrote last. Raises FileNotFoundError without the file, else RunFolderError."""
    summary = _object(path)
    _check_numbers(str(path), summary, (OBJECTIVE, *TESTED, "best_step"))
    return summary


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a run's steps, oldest first. Raises RunFolderError."""
    records = StepLog(path).read()
    for record in records:
        _check_numbers(f"{path} step {record['step']}", record, (CURVE, GAMES, SECONDS, SPREAD))
    return records


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        raise RunFolderError(f"{path}: not JSON") from None


def _object(path: Path) -> dict[str, Any]:
    found = _parsed(path)
    if not isinstance(found, dict):
        raise RunFolderError(f"{path}: must be an object")
    return found


def _check_numbers(where: str, record: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        value = record.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value)):
            raise RunFolderError(f"{where}: {name} must be a number or null, not {value!r}")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_ABOUT: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("text", lambda value: isinstance(value, str)),
    "question": ("text", lambda value: isinstance(value, str)),
    "storage": ("text or null", lambda value: isinstance(value, str | None)),
    "command": ("a list of texts", _is_texts),
    "identity": ("an object", lambda value: isinstance(value, dict)),
}
