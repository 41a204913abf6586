"""One training run as a child process: started or resumed, followed, and stopped.

The child is `python train.py` and knows nothing of studies. All that is known about it comes from
its run folder: metrics.jsonl while it runs, and summary.json as the only proof of success.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wordle_rl.sweeps.dead_workers import PATIENCE, wait_for_orphan, watched
from wordle_rl.sweeps.plan import insert_start, quote_path
from wordle_rl.sweeps.records import read_metrics, read_summary
from wordle_rl.sweeps.standby import child_environment, give_order


class ChildFailed(Exception):
    """A child ended without a summary; the message is one line with the cause."""


@dataclass(frozen=True, kw_only=True)
class ChildRun:
    """One training run of a trial."""

    command: tuple[str, ...]  # python train.py
    overrides: tuple[str, ...]
    folder: Path  # where its run folder is, or will be made

    def with_start(self, model: Path | None) -> ChildRun:
        """The same run, starting from the model of the stage before."""
        return replace(self, overrides=tuple(insert_start(self.overrides, model)))

    def run_folder(self) -> Path | None:
        """The newest run folder that has a manifest."""
        return max((file.parent for file in self.folder.glob("*/manifest.json")), default=None)

    def summary(self) -> dict[str, Any] | None:
        """The run's summary, or None while there is none. Raises FolderError."""
        run = self.run_folder()
        try:
            return read_summary(run / "summary.json") if run else None
        except FileNotFoundError:
            return None

    def records(self) -> list[dict[str, Any]]:
        """The metrics of its steps, oldest first. Raises FolderError."""
        run = self.run_folder()
        return read_metrics(run / "metrics.jsonl") if run else []

    def arguments(self) -> list[str]:
        """The command line that starts the run, or resumes it."""
        run = self.run_folder()
        if run is not None:
            return [*self.command, f"resume={quote_path(run)}"]
        return [*self.command, *self.overrides, f"output_dir={quote_path(self.folder)}"]


def run_child(
    run: ChildRun,
    *,
    threads: int,
    metrics: Callable[[dict[str, Any]], None],
    check: Callable[[], None],
    poll: float,
    take: Callable[[], subprocess.Popen[bytes] | None] = lambda: None,
) -> dict[str, Any]:
    """Do a run, or what is left of it. Returns its summary.

    threads: CPU threads of the child. metrics: called once with each record of metrics.jsonl,
    oldest first. check: called every `poll` seconds. Either may raise to stop the child, which then
    saves. take: called for a process of a Standby, once the run is sure to need one. Raises
    ChildFailed, and FolderError for a damaged file.
    """
    follower = _MetricsFollower(run, metrics)
    if (folder := run.run_folder()) is not None:
        wait_for_orphan(folder, check, poll)
    if (summary := run.summary()) is not None:
        follower.pass_on_news()
        return summary
    run.folder.mkdir(parents=True, exist_ok=True)
    log = run.folder / "output.log"
    begin = log.stat().st_size if log.exists() else 0
    child = _Child(run.arguments(), log, threads, take())
    try:
        while child.running(poll):
            check()
            follower.pass_on_news()
    finally:
        child.stop()
    follower.pass_on_news()
    if (summary := run.summary()) is None:
        raise ChildFailed(_explain_failure(log, begin, child.code))
    return summary


class _MetricsFollower:
    """Passes on the records of a run as they are written, each once."""

    def __init__(self, run: ChildRun, metrics: Callable[[dict[str, Any]], None]) -> None:
        self._run, self._metrics = run, metrics
        self._step, self._size = -1, -1

    def pass_on_news(self) -> None:
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
    """A command under its watchdog."""

    def __init__(
        self, arguments: Sequence[str], log: Path, threads: int,
        waiting: subprocess.Popen[bytes] | None = None,
    ) -> None:  # fmt: skip
        if waiting is not None and give_order(waiting, arguments, log):
            self._process = waiting
            return
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                watched(arguments),
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                env=child_environment(threads), start_new_session=True,
            )  # fmt: skip

    @property
    def code(self) -> int | None:
        return self._process.returncode

    def running(self, seconds: float) -> bool:
        """Wait up to so many seconds; whether the child still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is None

    def stop(self) -> None:
        """Let go of the watchdog, which stops what still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE + 10)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what an ended child left behind
        self._process.wait()


def _explain_failure(log: Path, begin: int, code: int | None) -> str:
    """Why a child failed: its own error line, or the last line that it wrote."""
    with open(log, "rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    last = (errors or said or ["it wrote nothing"])[-1]
    ended = f"signal {code - 128}" if code is not None and code > 128 else f"exit code {code}"
    return f"{last} ({ended}, no summary.json; full output in {log})"
