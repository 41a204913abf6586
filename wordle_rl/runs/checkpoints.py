"""Checkpoints that survive being killed at any moment, and that notice when they are broken.

A checkpoint is a folder step_000123 with a checkpoint.json that lists size and sha256 of each file.
It gets its name only when it is complete. One process writes to a store; others open it with
read_only=True.
"""

import hashlib
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable
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
from wordle_rl.runs.paths import TRAIN, command

MANIFEST = "checkpoint.json"
_STEP = re.compile(r"step_(\d{6,})")
_TEMP_PREFIX = ".tmp_"  # left behind by a killed process, removed on start


class CheckpointError(FolderError):
    """A checkpoint cannot be used; the message is one line that names the file and the fault."""


class CheckpointStore:
    """The checkpoints of one run; keeps the best one and the newest.

    folder: created if missing; on a local file system. keep: how many of the newest. Methods return
    a checkpoint's folder.
    """

    def __init__(self, folder: str | Path, *, read_only: bool = False, keep: int = 2) -> None:
        self.folder, self._keep = Path(folder), keep
        if not read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.glob(f"{_TEMP_PREFIX}step_*"):
                shutil.rmtree(path)

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Write a checkpoint. write: fills an empty folder.

        Replaces this step and later ones, which are from before the run went back to an earlier
        one. When write or the disk fails, all checkpoints are unchanged and nothing else is left.
        """
        target = self._of_step(step)
        temp = self._beside(target)
        temp.mkdir()
        try:
            write(temp)
            _seal(temp, step)
            for path in self._newest_first():
                if step_of(path) >= step:
                    self._remove(path)
            temp.rename(target)
        except BaseException:
            shutil.rmtree(temp, ignore_errors=True)
            raise
        sync_folder(self.folder)
        self._prune()
        return target

    def verify(self, path: Path) -> Path:
        """Compare a checkpoint's files with its list. Raises ConfigError naming the wrong one."""
        file = path / MANIFEST
        if not path.is_dir():
            raise CheckpointError(f"{path}: no such checkpoint")
        manifest = read_object(file)
        check_all_entries(file, manifest, {"step": int, "files": dict[str, dict]})
        if _STEP.fullmatch(path.name) and manifest["step"] != step_of(path):
            raise CheckpointError(f"{file}: is about step {manifest['step']}")
        for name, entry in manifest["files"].items():
            try:
                digest = _fingerprint(path / name)
            except (OSError, ValueError) as error:  # ValueError: a name that no file can have
                raise CheckpointError(f"{path / name}: cannot be read ({error})") from None
            if digest != entry:
                raise CheckpointError(
                    f"{path / name}: its bytes changed since they were written ({digest['bytes']} "
                    f"bytes, {entry.get('bytes')} expected)"
                )
        return path

    def load_latest(self) -> Path | None:
        """The newest unbroken checkpoint, with a warning about each newer one; None without any.

        Raises CheckpointError when all are broken.
        """
        faults = []
        for path in self._newest_first():
            try:
                self.verify(path)
            except ConfigError as error:
                faults.append(str(error))
                continue
            for fault in faults:
                warnings.warn(f"{fault}; going on from {path.name} instead", stacklevel=2)
            return path
        if faults:
            raise CheckpointError(f"no unbroken checkpoint left: {'; '.join(faults)}")
        return None

    def load_best(self) -> Path | None:
        """The checkpoint marked as best; if that is lost, load_latest() with a warning."""
        try:
            if (path := self.best()) is None:
                raise CheckpointError(f"{self.folder / 'best'}: names no checkpoint that is there")
            return self.verify(path)
        except ConfigError as error:
            fallback = self.load_latest()
            if fallback is not None:
                warnings.warn(f"{error}; {fallback.name} takes its place", stacklevel=2)
            return fallback

    def load_named(self, name: str, option: str) -> Path:
        """The checkpoint best, last or start, and no other one in its place.

        option: how the command line names it. Raises CheckpointError, also where the best is the
        start.
        """
        path = {"best": self.best(), "last": self.latest(), "start": self._of_step(0)}[name]
        if path is None or not path.is_dir():
            way = "continue the run with " + command(TRAIN, "resume", self.folder.parent)
            if name == "start":
                way = "it is kept while it is the best or among the newest; to begin there, give "
                way += f"model= the model.path of {self.folder.parent / 'config.yaml'}"
            raise CheckpointError(f"{self.folder}: there is no {name} checkpoint; {way}")
        self.verify(path)
        if name == "best" and step_of(path) == 0:
            raise CheckpointError(
                f"{self.folder.parent}: no validation was better than the start's, so the best "
                f"checkpoint is the start itself: give {option}last for what the run learnt, or "
                f"{option}start"
            )
        return path

    def latest(self) -> Path | None:
        """The newest checkpoint, not verified, or None."""
        return next(iter(self._newest_first()), None)

    def best(self) -> Path | None:
        """The checkpoint marked as best, not verified, or None."""
        try:
            name = (self.folder / "best").read_text(errors="replace").strip()
        except FileNotFoundError:
            return None
        path = self.folder / name
        return path if _STEP.fullmatch(name) and path.is_dir() else None

    def mark_best(self, step: int) -> None:
        """Keep the checkpoint of this step until another one is marked."""
        target = self._of_step(step)
        if not target.is_dir():
            raise CheckpointError(f"{target}: no such checkpoint to mark as best")
        write_bytes(self.folder / "best", f"{target.name}\n".encode())
        self._prune()

    def _newest_first(self) -> list[Path]:
        paths = (path for path in self.folder.glob("step_*") if _STEP.fullmatch(path.name))
        return sorted(paths, key=step_of, reverse=True)

    def _prune(self) -> None:
        best = self.best()
        for path in self._newest_first()[self._keep :]:
            if path != best:
                self._remove(path)

    def _remove(self, path: Path) -> None:
        # Renamed first, so that a kill cannot leave half a checkpoint under its name.
        temp = self._beside(path)
        path.rename(temp)
        shutil.rmtree(temp)

    def _of_step(self, step: int) -> Path:
        return self.folder / f"step_{step:06d}"

    def _beside(self, path: Path) -> Path:
        return self.folder / f"{_TEMP_PREFIX}{path.name}-{secrets.token_hex(4)}"


def step_of(path: Path) -> int:
    """The step of a checkpoint, from the name of its folder."""
    return int(path.name.removeprefix("step_"))


def _seal(folder: Path, step: int) -> None:
    """Flush every file to disk and list it with its size and hash."""
    paths = sorted(folder.rglob("*"))
    files = {
        path.relative_to(folder).as_posix(): _fingerprint(path, flush=True)
        for path in paths
        if not path.is_dir()
    }
    write_json(folder / MANIFEST, {"step": step, "files": files})
    for path in reversed([folder, *(path for path in paths if path.is_dir())]):
        sync_folder(path)


def _fingerprint(path: Path, *, flush: bool = False) -> dict[str, Any]:
    """The size and the hash of a file. flush: to disk first."""
    with open(path, "rb") as file:
        if flush:
            os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
        return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
