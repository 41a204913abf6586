"""The run folder: everything that a run made, in a form that can be read without the program.

Creates, opens and finds folders, writes the manifest, and locks a folder against a second training
process (over NFS where the server supports flock).
"""

from __future__ import annotations

import difflib
import fcntl
import importlib.metadata
import math
import os
import platform
import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import FolderError, StepLog, open_lock, read_object, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import EVAL, PACKAGE, ROOT, TRAIN, command, runnable, shorten

LATEST = "latest"  # given in place of a run's folder
OUTPUTS = ROOT / "outputs"
UNFINISHED = ("running", "interrupted", "failed")  # running: perhaps killed
_RUNS = ("wordle_rl", "conf", "hydra_plugins", "train.py", "eval.py")  # what makes a run
_DEBUG = {"debug=true", "debug='true'"}
_PACKAGES = (  # whose versions a manifest holds, where they are installed
    *("numpy", "torch", "lightning", "transformers", "tokenizers", "peft", "safetensors"),
    *("mlx", "mlx-lm", "hydra-core", "omegaconf", "optuna", "tensorboard"),
)
_RUN_FOLDER = re.compile(r"\d{8}-[\d-]+_(.+)")
_NAME_LENGTH = 60  # characters of a run's name that its folder keeps, and of changes in a label
_REASON_LENGTH = 500  # characters that a manifest keeps of why a run failed
_SETTING = re.compile(r"[+~]*([A-Za-z_][\w./@]*)=(.*)", re.S)
# Settings that say nothing about what is learnt.
_HOUSEKEEPING = re.compile(r"name|output_dir|resume|model|sweep|(hydra|logger|trainer[./]show).*")


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its paths, its manifest and its lock."""

    path: Path

    @classmethod
    def create(cls, root: str | Path, name: str, *, now: datetime | None = None) -> RunFolder:
        """Make <root>/<date>-<time>_<name>, then <date>-<time>-2_<name> and so on."""
        stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M")
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_NAME_LENGTH] or "run"
        make_outputs(Path(root))
        path, number = Path(root) / f"{stamp}_{label}", 1
        while True:
            with suppress(FileExistsError):
                path.mkdir()
                return cls(path)
            number += 1
            path = path.with_name(f"{stamp}-{number}_{label}")

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The folder of an earlier run. Raises FolderError unless its manifest can be read."""
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise FolderError(f"{path}: no such run folder")
        folder.manifest()
        return folder

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def resume_command(self) -> str:
        return command(TRAIN, "resume", shorten(self.path))

    @property
    def eval_command(self) -> str:
        return command(EVAL, "run", shorten(self.path))

    @property
    def play_command(self) -> str:
        return runnable(f"wordle-rl play --run {shlex.quote(str(shorten(self.path)))}")

    def log(self, name: str) -> StepLog:
        """metrics: a line a step. games: some games. validation_games: each validation game.

        groups: one group of each step that was validated.
        """
        return StepLog(self.path / f"{name}.jsonl")

    # -- the manifest -----------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """The entries of manifest.json. Raises FolderError when it is missing or broken."""
        path = self.path / "manifest.json"
        if not path.exists():
            raise FolderError(f"{self.path}: not a run folder (no manifest.json)")
        return read_object(path)

    def write_manifest(self, **entries: Any) -> dict[str, Any]:
        """Write and return manifest.json: status "running", the environment, and these entries."""
        start = {"status": "running", "started": _now(), "id": secrets.token_hex(8)}
        manifest = {**start, **describe_environment(), **entries}
        write_json(self.path / "manifest.json", manifest)
        return manifest

    def _update_manifest(self, **entries: Any) -> None:
        write_json(self.path / "manifest.json", {**self.manifest(), **entries})

    def set_status(self, status: str, reason: str | None = None) -> None:
        """Record "finished" or one of UNFINISHED, the time, the reason, and how long it ran."""
        manifest, now = self.manifest(), _now()
        part = [manifest, *manifest.get("resumes", [])][-1]
        begin, end = map(datetime.fromisoformat, (part.get("time") or manifest["started"], now))
        part["seconds"] = (end - begin).total_seconds()
        manifest.update(status=status, status_since=now, status_reason=reason)
        self._update_manifest(**manifest)

    def set_failed(self, error: BaseException) -> None:
        """Record that the run failed and why. On a full disk it stays running, as after a kill."""
        reason = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        reason = " ".join(reason.split())[:_REASON_LENGTH]
        with suppress(OSError, KeyError, ValueError):  # the error itself matters more
            self.set_status("failed", reason)

    def note_resume(self, **entries: Any) -> None:
        """Record that the run is resumed. entries: its step, command and changed settings."""
        resume = {"time": _now(), **describe_environment(), **entries}
        resumes = [*self.manifest().get("resumes", []), resume]
        self._update_manifest(status="running", status_reason=None, resumes=resumes)

    def note_computing(self, record: Mapping[str, Any]) -> None:
        """Record how the run computes from its start, or its last resume, on."""
        manifest = self.manifest()
        [manifest, *manifest.get("resumes", [])][-1]["computing"] = dict(record)
        self._update_manifest(**manifest)

    def computing(self) -> dict[str, Any]:
        """The last record of note_computing(); empty before the first."""
        manifest = self.manifest()
        parts = [manifest, *manifest.get("resumes", [])]
        return next((part["computing"] for part in reversed(parts) if "computing" in part), {})

    @property
    def status(self) -> str:
        """The status of its manifest, but "interrupted" for a run that was killed."""
        status = str(self.manifest().get("status"))
        if status == "running":
            with suppress(OSError, FolderError), open_lock(self.path / ".lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # fails while a process trains
                status = "interrupted"
        return status

    @property
    def seconds(self) -> float:
        """How long it ran, pauses left out; NaN if unknown. What a kill ended counts nothing."""
        parts = [manifest := self.manifest(), *manifest.get("resumes", [])]
        return sum(part["seconds"] for part in parts if "seconds" in part) or math.nan

    @property
    def begun(self) -> bool:
        """Whether the run has measured anything, or was resumed."""
        measured = any((self.path / name).exists() for name in ("start.json", "metrics.jsonl"))
        return measured or bool(self.manifest().get("resumes"))

    # -- the lock ---------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process alone; the kernel unlocks it when the process dies.

        Raises FolderError at once when another process, or another lock in this one, holds it.
        """
        with open_lock(self.path / ".lock") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read(20).decode("ascii", "replace").strip() or "unknown"
                raise FolderError(
                    f"{self.path}: process {holder} is training in this folder"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            file.flush()
            yield


def make_outputs(folder: Path) -> None:
    """Make a folder for runs. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"output_dir={folder}: {error.strerror}") from error


# -- the runs of a folder -------------------------------------------------------------------------


def list_runs(outputs: Path = OUTPUTS) -> list[tuple[RunFolder, dict[str, Any]]]:
    """The runs of a folder with their manifests, as they began. A run's number counts from 1."""
    runs = []
    for path in outputs.glob("*/manifest.json"):
        with suppress(OSError, KeyError, TypeError, ValueError):  # of a damaged folder
            manifest = read_object(path)
            start = datetime.fromisoformat(manifest["started"]).astimezone()
            runs.append((start, path.parent, manifest))
    return [(RunFolder(path), manifest) for _, path, manifest in sorted(runs, key=lambda r: r[:2])]


def find_run(
    given: str, setting: str = "run", *statuses: str, root: Path = ROOT, outputs: Path = OUTPUTS
) -> RunFolder:
    """The run that a setting names: by its folder, its number, or `latest`, which began last.

    statuses: which ones the latest may have; without any, all that measured something. It is a run
    of debug=true only where there is no other. root: where a relative folder starts. outputs: where
    the numbered ones are. Raises FolderError and ConfigError.
    """
    if not given:
        raise ConfigError(f"{setting} must be a run folder, the number of a run, or {LATEST}")
    if given != LATEST and (root / given).is_dir():
        return RunFolder.open(root / given)
    runs = list_runs(outputs)
    if given == LATEST:
        matches = [run for run in runs if not statuses or run[1].get("status") in statuses]
        if not matches:
            kind = f" that is {' or '.join(statuses)}" if statuses else ""
            raise ConfigError(f"{setting}={LATEST}: {outputs} has no run{kind}")
        candidates = [run for run in matches if not _DEBUG & {*run[1].get("command", [])}]
        candidates = [run for run in candidates if statuses or run[0].begun] or candidates
        return (candidates or matches)[-1][0]
    if given.isdecimal():
        if not 1 <= int(given) <= len(runs):
            text = f"the runs 1 to {len(runs)}" if runs else "no run"
            raise ConfigError(
                f"{setting}={given}: {outputs} has {text}; a study's trials are named by folder"
            )
        return runs[int(given) - 1][0]
    names = {run.path.name: str(shorten(run.path)) for run, _ in runs}
    suggestions = difflib.get_close_matches(Path(given).name, [*names, LATEST], 1)
    hint = f"{runnable('wordle-rl runs')} lists them"
    if suggestions:
        hint = f"did you mean {names.get(suggestions[0], suggestions[0])}?"
    raise FolderError(f"{root / given}: no such run folder, {hint}")


# -- names ----------------------------------------------------------------------------------------


def given_name(folder: str) -> str:
    """The name that a run was given, from the name of its folder."""
    match = _RUN_FOLDER.fullmatch(folder)
    return match[1] if match else folder


def label_run(manifest: Mapping[str, Any]) -> str:
    """A short name of model and changes, such as `mini, lr=1e-4 seed=1`; no resume changes it."""
    model = manifest.get("choices", {}).get("model") or str(manifest.get("model", "run"))
    changes = {}
    for setting in filter(None, map(_SETTING.fullmatch, manifest.get("command", [])[1:])):
        key, value = setting[1], setting[2].strip("'\"")
        if not _HOUSEKEEPING.fullmatch(key):
            changes[key] = Path(value).name or value
    words = [changes.pop("experiment")] if "experiment" in changes else []
    words += [f"{key.rpartition('.')[2]}={value}" for key, value in changes.items()]
    text = " ".join(words)
    text = text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 3]}..."
    return ", ".join(filter(None, [Path(model).name or model, text]))


# -- what a run is made with ----------------------------------------------------------------------


def describe_environment() -> dict[str, Any]:
    """Python, platform, processors, package versions and git revision."""
    versions = {}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "versions": versions,
        "git": git_revision(PACKAGE.parent),
    }


def git_revision(folder: Path) -> dict[str, Any] | None:
    """{"revision", "dirty"} of the repository whose root is folder; None for another folder.

    Only changes of the package, its configs and the two commands count.
    """

    def git(*arguments: str) -> str:
        # Without optional locks, asking for the status never disturbs a git command beside it.
        command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
        result = subprocess.run(command, capture_output=True, timeout=10, check=True)
        return os.fsdecode(result.stdout).strip()

    try:
        revision, root = git("rev-parse", "HEAD", "--show-toplevel").splitlines()
        if Path(root).resolve() != folder.resolve():
            return None
        return {"revision": revision, "dirty": bool(git("status", "--porcelain", "--", *_RUNS))}
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _now() -> str:
    """Local time with its UTC offset, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
