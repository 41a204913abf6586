"""The run folder: everything that a run made, in a form that can be read without the program.

Creates and opens folders, writes the manifest, and locks a folder against a second training process
(on one machine, and over NFS where the server supports flock).
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wordle_rl.runs.environment import describe_environment
from wordle_rl.runs.files import (
    FolderError,
    RunFolderError,
    StepLog,
    read_object,
    write_json,
)

__all__ = ["RunFolder", "RunFolderError", "StepLog", "write_json"]

UNFINISHED = ("running", "interrupted", "failed")  # running: perhaps killed
_RUN_FOLDER = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_(.+)_\d+-[0-9a-f]{6}")
_NAME_LENGTH = 60  # characters of a run's name that its folder keeps
_REASON_LENGTH = 500  # characters that a manifest keeps of why a run failed


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its paths, its manifest and its lock."""

    path: Path

    @classmethod
    def create(cls, root: str | Path, name: str, *, now: datetime | None = None) -> RunFolder:
        """Make <root>/<date>_<time>_<name>_<process id>-<random>; never an existing folder."""
        stamp = (now or datetime.now()).strftime("%Y-%m-%d_%H-%M-%S")
        label = re.sub(r"[^A-Za-z0-9._=-]+", "-", name).strip("-.")[:_NAME_LENGTH] or "run"
        path = Path(root) / f"{stamp}_{label}_{os.getpid()}-{secrets.token_hex(3)}"
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
            path.mkdir(exist_ok=False)
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be created ({error.strerror})") from None
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The folder of an earlier run. Raises RunFolderError unless its manifest can be read."""
        path = Path(path)
        if not path.is_dir():
            wrong = "is a file, not a run folder" if path.exists() else "no such run folder"
            raise RunFolderError(f"{path}: {wrong}")
        folder = cls(path)
        folder.manifest()
        return folder

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def metrics_log(self) -> StepLog:
        """The metrics of each step, one line a step: metrics.jsonl."""
        return StepLog(self.path / "metrics.jsonl")

    def games_log(self) -> StepLog:
        """Games of every n-th step, one line a game: games.jsonl."""
        return StepLog(self.path / "games.jsonl")

    def validation_games_log(self) -> StepLog:
        """Every validation game, one line a game: validation_games.jsonl."""
        return StepLog(self.path / "validation_games.jsonl")

    def manifest(self) -> dict[str, Any]:
        """The entries of manifest.json. Raises RunFolderError when it is missing or broken."""
        path = self.path / "manifest.json"
        try:
            return read_object(path)
        except FileNotFoundError:
            raise RunFolderError(f"{self.path}: not a run folder (no manifest.json)") from None
        except FolderError as error:
            raise RunFolderError(str(error)) from None

    def write_manifest(self, **entries: Any) -> dict[str, Any]:
        """Write and return manifest.json: status "running", the environment, and these entries.

        entries: what repeats the run, such as its seeds, the digests of its words, its command.
        """
        manifest = {"status": "running", "started": _now(), **describe_environment(), **entries}
        write_json(self.path / "manifest.json", manifest)
        return manifest

    def set_status(self, status: str, reason: str | None = None) -> None:
        """Record "finished" or one of UNFINISHED, the time and the reason."""
        self._update_manifest(status=status, status_since=_now(), status_reason=reason)

    def set_failed(self, error: BaseException) -> None:
        """Record that the run failed and why. On a full disk it stays running, as after a kill."""
        reason = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        reason = " ".join(reason.split())[:_REASON_LENGTH]
        with suppress(OSError, FolderError):  # the error itself matters more
            self.set_status("failed", reason)

    def _update_manifest(self, **entries: Any) -> None:
        write_json(self.path / "manifest.json", {**self.manifest(), **entries})

    def note_first_checkpoint(self) -> None:
        """Record that a checkpoint exists, so that a later loss of all checkpoints is noticed."""
        self._update_manifest(first_checkpoint=_now())

    def note_computing(self, record: Mapping[str, Any]) -> None:
        """Record how the run computes from its start, or its last resume, on."""
        resumes = self.manifest().get("resumes")
        if resumes:
            last = {**resumes[-1], "computing": dict(record)}
            self._update_manifest(resumes=[*resumes[:-1], last])
        else:
            self._update_manifest(computing=dict(record))

    def computing(self) -> dict[str, Any]:
        """The last record of note_computing(); empty before the first."""
        manifest = self.manifest()
        parts = [manifest, *manifest.get("resumes", [])]
        return next((part["computing"] for part in reversed(parts) if "computing" in part), {})

    def note_resume(self, **entries: Any) -> None:
        """Record that the run is resumed. entries: its step, command and changed settings."""
        resume = {"time": _now(), **describe_environment(), **entries}
        resumes = [*self.manifest().get("resumes", []), resume]
        self._update_manifest(status="running", status_reason=None, resumes=resumes)

    def remove_unless_begun(self) -> bool:
        """Remove the folder of a run that failed before it measured anything; returns whether."""
        begun = any((self.path / name).exists() for name in ("start.json", "metrics.jsonl"))
        if not begun:
            shutil.rmtree(self.path, ignore_errors=True)
        return not begun

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process alone; the kernel unlocks it when the process dies.

        Raises RunFolderError at once when another process, or another lock in this one, holds it.
        A forked child also holds the lock; processes started with subprocess do not.
        """
        with open(self.path / ".lock", "a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read(20).decode("ascii", "replace").strip() or "unknown"
                raise RunFolderError(
                    f"{self.path}: process {holder} is training in this folder"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            file.flush()
            yield


def given_name(folder: str) -> str:
    """The name that a run was given, from the name of its folder."""
    found = _RUN_FOLDER.fullmatch(folder)
    return found[1] if found else folder


def maker(model: str | Path) -> RunFolder | None:
    """The run that a model folder belongs to: <run>/model or a checkpoint; None for others."""
    for folder in list(Path(model).resolve().parents)[:3]:
        if (folder / "manifest.json").is_file() and (folder / "checkpoints").is_dir():
            return RunFolder(folder)
    return None


def _now() -> str:
    """Local time with its UTC offset, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
