"""The runs in a folder: what is known of each, and which is the latest."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import FolderError, read_object
from wordle_rl.runs.folder import RunFolder, given_name
from wordle_rl.runs.instantiate import ConfigError

LATEST = "latest"  # given in place of a run's folder
UNREADABLE, KILLED = "unreadable", "killed"
_BROKEN = (FolderError, OSError, KeyError, TypeError, ValueError)  # what a damaged folder raises


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What a list says about one run; None for what is not known."""

    folder: Path
    name: str
    status: str  # of its manifest, or KILLED (running without a process), or UNREADABLE
    started: datetime | None = None
    model: str | None = None  # the option of model=, or the run whose model this one began with
    reward: str | None = None
    steps: int | None = None  # done
    validation_wins: float | None = None  # of the best validation, 0..1
    test_wins: float | None = None  # of the report at the end, 0..1


def find_run(given: str, setting: str, root: Path, outputs: Path, *statuses: str) -> RunFolder:
    """The run that a setting names, by its folder or as the latest.

    root: where a relative folder starts. outputs: where the latest is looked for. statuses: which
    ones the latest may have; without any, all. Raises RunFolderError for a folder that is no run,
    ConfigError when there is no such run.
    """
    if given != LATEST:
        return RunFolder.open(root / given)
    found = []
    for path in _paths(outputs):
        with suppress(*_BROKEN):
            manifest = RunFolder(path).manifest()
            if not statuses or manifest["status"] in statuses:
                found.append((_started(manifest), path))
    if not found:
        kind = f" that is {' or '.join(statuses)}" if statuses else ""
        raise ConfigError(f"{setting}={LATEST}: {outputs} has no run{kind}")
    return RunFolder(max(found)[1])


def list_runs(outputs: Path) -> list[RunState]:
    """What is known of each run in a folder, newest first. Unreadable ones come last."""
    states = [_describe(path) for path in _paths(outputs)]
    return sorted(states, key=lambda state: str(state.started or ""), reverse=True)


def _paths(outputs: Path) -> list[Path]:
    return sorted(path.parent for path in outputs.glob("*/manifest.json"))


def _started(manifest: dict[str, Any]) -> datetime:
    """When a run began, as local time. Raises KeyError and ValueError for other entries."""
    return datetime.fromisoformat(manifest["started"]).astimezone()


def _describe(path: Path) -> RunState:
    name, folder, summary = given_name(path.name), RunFolder(path), {}
    try:
        manifest, records = folder.manifest(), folder.metrics_log().read()
        with suppress(FileNotFoundError):
            summary = read_object(path / "summary.json")
        start, choices = manifest.get("init_from"), manifest.get("choices", {})
        rates = [rate for r in records if (rate := r.get("val/win_rate")) is not None]
        return RunState(
            folder=path,
            name=name,
            status=KILLED
            if manifest["status"] == "running" and not _is_held(path)
            else manifest["status"],
            started=_started(manifest),
            model=f"of {given_name(Path(start['run']).name)}" if start else choices.get("model"),
            reward=choices.get("reward"),
            steps=records[-1]["step"] if records else 0,
            validation_wins=max(rates, default=None),
            test_wins=summary.get("win_rate"),
        )
    except _BROKEN:
        return RunState(folder=path, name=name, status=UNREADABLE)


def _is_held(path: Path) -> bool:
    """Whether a process trains in a run folder."""
    try:
        with open(path / ".lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
