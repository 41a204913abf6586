"""One training run as a child process: started or gone on with, followed, stopped.

The child is python train.py and knows nothing of studies. What it does is read from its run folder
alone: metrics.jsonl while it runs, and summary.json as the only proof that it succeeded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wordle_rl.runs.addresses import STORAGE
from wordle_rl.runs.files import RunFolderError
from wordle_rl.runs.folder import RunFolder
from wordle_rl.sweeps.plan import quoted_path, started_from
from wordle_rl.sweeps.records import read_metrics, read_summary

KEEPER = Path(__file__).with_name("watchdog.py")
PATIENCE = 60.0  # seconds in which a child that was asked to stop may save


class ChildFailed(Exception):
    """A child ended without a summary; the message is one line with the cause."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run of a trial."""

    command: tuple[str, ...]  # python train.py
    overrides: tuple[str, ...]
    folder: Path  # where its run folder is, or will be made

    def with_start(self, model: Path | None) -> Run:
        """The same, beginning with the model of the stage before."""
        return replace(self, overrides=tuple(started_from(self.overrides, model)))

    def run_folder(self) -> Path | None:
        """The newest run in here that has begun."""
        return max((file.parent for file in self.folder.glob("*/manifest.json")), default=None)

    def summary(self) -> dict[str, Any] | None:
        """What the run wrote last, if it came that far. Raises RunFolderError."""
        run = self.run_folder()
        try:
            return read_summary(run / "summary.json") if run else None
        except FileNotFoundError:
            return None

    def records(self) -> list[dict[str, Any]]:
        """Those of its steps, oldest first. Raises RunFolderError."""
        run = self.run_folder()
        return read_metrics(run / "metrics.jsonl") if run else []

    def arguments(self) -> list[str]:
        run = self.run_folder()
        if run is not None:
            return [*self.command, f"resume={quoted_path(run)}"]
        return [*self.command, *self.overrides, f"output_dir={quoted_path(self.folder)}"]


def run_child(
    run: Run,
    *,
    threads: int,
    metrics: Callable[[dict[str, Any]], None],
    check: Callable[[], None],
    poll: float,
) -> dict[str, Any]:
    """Do a run, or what is left of it. Returns its summary.

    threads: CPU threads of the child. metrics: given each record of metrics.jsonl once, oldest
    first; check: called every `poll` seconds. Either may raise to stop the child, which then saves.
    Raises ChildFailed, and RunFolderError for a damaged file.
    """
    told = _Told(run, metrics)
    _wait_for_lock(run, check, poll)
    if (summary := run.summary()) is not None:
        told.news()
        return summary
    run.folder.mkdir(parents=True, exist_ok=True)
    log = run.folder / "output.log"
    begin = log.stat().st_size if log.exists() else 0
    child = _Child(run.arguments(), log, threads)
    try:
        while child.running(poll):
            check()
            told.news()
    finally:
        child.stop()
    told.news()
    if (summary := run.summary()) is None:
        raise ChildFailed(_cause(log, begin, child.code))
    return summary


class _Told:
    """Hands on the records of a run as they come, each once."""

    def __init__(self, run: Run, metrics: Callable[[dict[str, Any]], None]) -> None:
        self._run, self._metrics = run, metrics
        self._step, self._size = -1, -1

    def news(self) -> None:
        folder = self._run.run_folder()
        with contextlib.suppress(FileNotFoundError):
            size = (folder / "metrics.jsonl").stat().st_size if folder else -1
            if size == self._size:
                return
            for record in self._run.records():
                if record["step"] > self._step:
                    self._step = record["step"]
                    self._metrics(record)
            self._size = size


class _Child:
    """A command under its keeper."""

    def __init__(self, arguments: Sequence[str], log: Path, threads: int) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        env.pop(STORAGE, None)  # may hold a password, and a run needs no database
        keeper = [sys.executable, "-I", str(KEEPER), str(PATIENCE)]
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [*keeper, *arguments],
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=env,
                start_new_session=True,
            )  # fmt: skip

    @property
    def code(self) -> int | None:
        return self._process.returncode

    def running(self, seconds: float) -> bool:
        """Wait that long at most; whether the child still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is None

    def stop(self) -> None:
        """Let go: the keeper stops what still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE + 10)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what an ended child left behind
        self._process.wait()


def _wait_for_lock(run: Run, check: Callable[[], None], poll: float) -> None:
    """Until the child of a dead worker, which may still be saving, has ended."""
    end = time.monotonic() + PATIENCE + 10
    while (folder := run.run_folder()) is not None:
        try:
            with RunFolder(folder).lock():
                return
        except RunFolderError as error:
            if time.monotonic() > end:
                raise ChildFailed(str(error)) from None
            check()
            time.sleep(min(poll, 1.0))


def _cause(log: Path, begin: int, code: int | None) -> str:
    """Why a child failed: its own error line, or the last that it wrote."""
    with open(log, "rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    last = (errors or said or ["it wrote nothing"])[-1]
    ended = f"signal {code - 128}" if code is not None and code > 128 else f"exit code {code}"
    return f"{last} ({ended}, no summary.json; all it wrote: {log})"
