"""Checkpoints that survive being killed at any moment, and that notice when they are broken.

A checkpoint is a folder step_000123 with a checkpoint.json that lists size and sha256 of each file.
It gets its name only when it is complete. One process writes to a store; others open it with
read_only=True.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import (
    FolderError,
    check_all_entries,
    read_object,
    sync_folder,
    write_bytes,
    write_json,
)
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import TRAIN

MANIFEST = "checkpoint.json"
_STEP = re.compile(r"step_(\d{6,})")
_TEMPORARY, _REPLACED = ".tmp_", ".old_"  # left behind by a killed process, removed on start


class CheckpointError(FolderError):
    """A checkpoint cannot be used; the message is one line that names the file and the fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint whose files were verified."""

    path: Path  # its folder
    step: int


class CheckpointStore:
    """The checkpoints of one run; keeps the best one, and so many of the newest.

    folder: created if missing; on a local file system.
    """

    def __init__(self, folder: str | Path, keep: int = 2, *, read_only: bool = False) -> None:
        if keep < 1:
            raise ValueError(f"checkpoints.keep must be 1 or more, not {keep}")
        self.folder = Path(folder)
        self.keep = keep
        self.read_only = read_only
        if not read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clean_up()

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Write a checkpoint, or replace it, and return its folder. write: fills an empty folder.

        When write or the disk fails, older checkpoints are unchanged and nothing else is left.
        """
        target = self.folder / f"step_{step:06d}"
        temporary = self._beside(_TEMPORARY, target)
        temporary.mkdir()
        try:
            write(temporary)
            _seal(temporary, step)
            replaced = self._beside(_REPLACED, target) if target.exists() else None
            if replaced:
                target.rename(replaced)
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            self._clean_up()
            raise
        sync_folder(self.folder)
        self._point("last", target)
        if replaced:
            shutil.rmtree(replaced)
        self._prune()
        return target

    def verify(self, path: str | Path) -> Checkpoint:
        """Compare a checkpoint's files with its list. Raises ConfigError naming the wrong one."""
        path = Path(path)
        listed = path / MANIFEST
        if not path.is_dir():
            raise CheckpointError(f"{path}: no such checkpoint")
        manifest = read_object(listed)
        check_all_entries(listed, manifest, {"step": int, "files": dict[str, dict]})
        step = manifest["step"]
        if _STEP.fullmatch(path.name) and step != step_of(path):
            raise CheckpointError(f"{listed}: is about step {step}")
        for name, expected in manifest["files"].items():
            try:
                found = _fingerprint(path / name)
            except (OSError, ValueError) as error:  # ValueError: a name that no file can have
                raise CheckpointError(f"{path / name}: cannot be read ({error})") from None
            if found != expected:
                raise CheckpointError(
                    f"{path / name}: its bytes changed since they were written ({found['bytes']} "
                    f"bytes, {expected.get('bytes')} expected)"
                )
        return Checkpoint(path=path, step=step)

    def load_latest(self) -> Checkpoint | None:
        """The newest unbroken checkpoint, with a warning about each newer one; None without any.

        Raises CheckpointError when all are broken.
        """
        faults = []
        if (self.folder / "last").exists() and self._pointed("last") is None:
            faults.append(f"{self.folder / 'last'}: names a checkpoint that is not there")
        for path in self._newest_first():
            try:
                checkpoint = self.verify(path)
            except ConfigError as error:
                faults.append(str(error))
                continue
            for fault in faults:
                warnings.warn(f"{fault}; going on from {path.name} instead", stacklevel=2)
            return checkpoint
        if faults:
            raise CheckpointError(f"no unbroken checkpoint left: {'; '.join(faults)}")
        return None

    def load_best(self) -> Checkpoint | None:
        """The checkpoint marked as best; if that is lost, load_latest() with a warning."""
        if not self._all():
            return None
        marked = self.best()
        try:
            if marked is None:
                raise CheckpointError(f"{self.folder / 'best'}: names no checkpoint that is there")
            return self.verify(marked)
        except ConfigError as error:
            newest = self.load_latest()
            if newest is not None:
                warnings.warn(f"{error}; {newest.path.name} takes its place", stacklevel=2)
            return newest

    def load_named(self, name: str, option: str) -> Checkpoint:
        """The checkpoint best, last or start, and no other one in its place.

        option: how the command line names it. Raises FolderError, also if the best is the start.
        """
        path = {"best": self.best, "last": self.latest, "start": self.start}[name]()
        if path is None:
            raise CheckpointError(
                f"{self.folder}: there is no {name} checkpoint; continue the run with "
                f"{TRAIN} resume={self.folder.parent}"
            )
        found = self.verify(path)
        if name == "best" and found.step == 0:
            raise CheckpointError(
                f"{self.folder.parent}: the best checkpoint is the run's own start; use "
                f"{option}last for what it learnt, or {option}start for the start"
            )
        return found

    def latest(self) -> Path | None:
        """Folder of the newest checkpoint, not verified, or None."""
        return next(iter(self._newest_first()), None)

    def best(self) -> Path | None:
        """Folder of the checkpoint marked as best, not verified, or None."""
        return self._pointed("best")

    def start(self) -> Path | None:
        """Folder of the checkpoint before the first step, not verified, or None."""
        return next((path for path in self._all() if step_of(path) == 0), None)

    def mark_best(self, step: int) -> None:
        """Keep the checkpoint of this step until another one is marked."""
        target = self.folder / f"step_{step:06d}"
        if not target.is_dir():
            raise CheckpointError(f"{target}: no such checkpoint to mark as best")
        self._point("best", target)
        self._prune()

    def _newest_first(self) -> list[Path]:
        """The last saved one, then earlier steps, then later ones, from before a resume."""
        paths = {step_of(path): path for path in self._all()}
        last = self._pointed("last")
        newest = max(paths, default=0) if last is None else step_of(last)
        return [paths[step] for step in sorted(paths, key=lambda step: (step > newest, -step))]

    def _all(self) -> list[Path]:
        return [path for path in self.folder.glob("step_*") if _STEP.fullmatch(path.name)]

    def _prune(self) -> None:
        best = self.best()
        for path in self._newest_first()[self.keep :]:
            if path != best:
                # Renamed first, so that a kill cannot leave half a checkpoint under its name.
                doomed = self._beside(_TEMPORARY, path)
                path.rename(doomed)
                shutil.rmtree(doomed)

    def _clean_up(self) -> None:
        """Clean up after a killed or failed save: restore replaced checkpoints, remove the rest."""
        for left in self.folder.glob(f"{_REPLACED}step_*"):
            target = self.folder / left.name.removeprefix(_REPLACED).rsplit("-", 1)[0]
            if target.exists():
                shutil.rmtree(left)
            else:
                left.rename(target)
        for left in self.folder.glob(f"{_TEMPORARY}step_*"):
            shutil.rmtree(left)

    def _beside(self, prefix: str, target: Path) -> Path:
        return self.folder / f"{prefix}{target.name}-{secrets.token_hex(4)}"

    def _point(self, pointer: str, target: Path) -> None:
        write_bytes(self.folder / pointer, f"{target.name}\n".encode())

    def _pointed(self, pointer: str) -> Path | None:
        try:
            name = (self.folder / pointer).read_text(errors="replace").strip()
        except FileNotFoundError:
            return None
        path = self.folder / name
        return path if _STEP.fullmatch(name) and path.is_dir() else None


def step_of(path: Path) -> int:
    """The step of a checkpoint, from the name of its folder."""
    return int(path.name.removeprefix("step_"))


def _seal(folder: Path, step: int) -> None:
    """Flush every file to disk and list it with its size and hash."""
    inside = sorted(folder.rglob("*"))
    files = {
        path.relative_to(folder).as_posix(): _fingerprint(path, flush=True)
        for path in inside
        if not path.is_dir()
    }
    write_json(folder / MANIFEST, {"step": step, "files": files})
    for path in reversed([folder, *(path for path in inside if path.is_dir())]):
        sync_folder(path)


def _fingerprint(path: Path, *, flush: bool = False) -> dict[str, Any]:
    """The size and the hash of a file. flush: to disk first."""
    with open(path, "rb") as file:
        if flush:
            os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
        return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
