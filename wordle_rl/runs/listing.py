"""The runs in a folder: what is known of each, and which is the latest."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
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
_BROKEN = (FolderError, OSError, KeyError, ValueError)  # what a damaged run folder raises


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What a list says about one run; None for what is not known."""

    folder: Path
    name: str
    status: str  # of STATUSES, or KILLED (running without a process), or UNREADABLE
    started: datetime | None = None
    model: str | None = None
    reward: str | None = None
    steps: int | None = None  # done
    validation_wins: float | None = None  # of the best validation, 0..1
    test_wins: float | None = None  # of the report at the end, 0..1


def find_run(given: str, setting: str, root: Path, outputs: Path, *statuses: str) -> RunFolder:
    """The run that a setting names, by its folder or as the latest.

    root: where a relative folder starts. outputs: where the latest is looked for. statuses: which
    of STATUSES the latest may have; without any, all. Raises RunFolderError for a folder that is no
    run, ConfigError when there is no such run.
    """
    if given != LATEST:
        return RunFolder.open(root / given)
    found = []
    for folder, manifest in _readable(outputs):
        with suppress(KeyError, ValueError):
            if not statuses or manifest["status"] in statuses:
                found.append((_started(manifest), folder.path))
    if not found:
        kind = f" that is {' or '.join(statuses)}" if statuses else ""
        raise ConfigError(f"{setting}={LATEST}: {outputs} has no run{kind}")
    return RunFolder(max(found)[1])


def list_runs(outputs: Path) -> list[RunState]:
    """What is known of each run in a folder, newest first. Unreadable ones come last."""
    states = [_describe(path) for path in _paths(outputs)]
    known = [state for state in states if state.started is not None]
    known.sort(key=lambda state: str(state.started), reverse=True)
    return known + [state for state in states if state.started is None]


def _paths(outputs: Path) -> list[Path]:
    if not outputs.is_dir():
        return []
    return sorted(path for path in outputs.iterdir() if (path / "manifest.json").is_file())


def _readable(outputs: Path) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    for path in _paths(outputs):
        with suppress(FolderError, OSError):
            folder = RunFolder.open(path)
            yield folder, folder.manifest()


def _started(manifest: dict[str, Any]) -> datetime:
    """When a run began, as local time. Raises KeyError and ValueError for other entries."""
    return datetime.fromisoformat(str(manifest["started"])).astimezone()


def _describe(path: Path) -> RunState:
    name = given_name(path.name)
    try:
        folder = RunFolder.open(path)
        manifest, records, summary = folder.manifest(), folder.metrics_log().read(), {}
        with suppress(FileNotFoundError):
            summary = read_object(path / "summary.json")
        started, status = _started(manifest), manifest["status"]
    except _BROKEN:
        return RunState(folder=path, name=name, status=UNREADABLE)
    choices = manifest.get("choices", {})
    rates = [
        rate for record in records if (rate := _number(record.get("val/win_rate"))) is not None
    ]
    return RunState(
        folder=path,
        name=name,
        started=started,
        status=KILLED if status == "running" and not is_held(path) else status,
        model=_describe_model(manifest),
        reward=choices.get("reward"),
        steps=records[-1]["step"] if records else 0,
        validation_wins=max(rates, default=None),
        test_wins=_number(summary.get("win_rate")),
    )


def _describe_model(manifest: dict[str, Any]) -> str | None:
    """The option of model=, or the run whose model this one began with."""
    start = manifest.get("init_from")
    if isinstance(start, dict) and isinstance(start.get("run"), str):
        return f"of {given_name(Path(start['run']).name)}"
    return manifest.get("choices", {}).get("model")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def is_held(path: Path) -> bool:
    """Whether a process trains in a run folder."""
    try:
        with open(path / ".lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
