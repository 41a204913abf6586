"""One trial of a study: a training run for each stage, each in a process of its own.

A run is `python train.py` and knows nothing of studies. All that is known about it comes from its
run folder: metrics.jsonl while it runs, and summary.json as the only proof of success.
"""

from __future__ import annotations

import fcntl
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna

from wordle_rl.runs.files import (
    FolderError,
    StepLog,
    check_entries,
    read_json,
    read_object,
    write_json,
)
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.launch import without_launch
from wordle_rl.runs.paths import environment, train_command
from wordle_rl.sweeps.plan import insert_start
from wordle_rl.sweeps.settings import StudySettings
from wordle_rl.sweeps.space import quote

OBJECTIVE = "val_win_rate"  # of summary.json: validation wins of the best checkpoint
TESTED = ("win_rate", "mean_guesses_with_losses")  # of summary.json: its report on the test secrets
CURVE, GAMES, SECONDS, SPREAD = "val/win_rate", "total/games", "time/step", "groups/zero_spread"
PATIENCE = 60.0  # seconds that a run may take to save after it was asked to stop
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a run that saved


class TrialFailed(Exception):
    """A trial failed; the message is one line with the cause."""


class TrialKilled(TrialFailed):
    """A signal ended the run of a trial, which can continue."""


class TrialRuns:
    """The runs of one trial, in its folder."""

    def __init__(
        self,
        trial: optuna.Trial,
        folder: Path,
        stages: Sequence[Sequence[str]],
        settings: StudySettings,
        pause: Callable[[], None],
    ) -> None:
        """pause: called about every settings.poll seconds; it may raise to stop the trial."""
        self._trial, self._folder, self._stages = trial, folder, [list(s) for s in stages]
        self._settings, self._pause = settings, pause
        self._curve: list[tuple[float, float]] = []  # games so far, validation wins
        self._step, self._size, self._games, self._count = -1, -1, 0.0, 0
        self._reported = set(trial.storage.get_trial(trial._trial_id).intermediate_values)

    @property
    def begun(self) -> bool:
        return any(self._folder.rglob("manifest.json"))

    def work(self) -> float:
        """Do what is left of the trial. Returns its validation wins, and notes its figures.

        Raises TrialFailed, optuna.TrialPruned, ConfigError for the folder of another trial, and
        what pause raises.
        """
        summary: dict[str, Any] = {}
        try:
            with self._claim_folder() as lock:
                try:
                    for number in range(1, len(self._stages) + 1):
                        summary = self._run_stage(number, lock)
                except optuna.TrialPruned:
                    self._note_figures({})
                    raise
            value = summary.get(OBJECTIVE)
            if value is None or not math.isfinite(value):
                where = self._run_folder(len(self._stages))
                raise TrialFailed(f"{OBJECTIVE} in {where} is {value}, not a number")
            self._note_figures(summary)
        except FolderError as error:
            raise TrialFailed(str(error)) from None
        return float(value)

    @contextmanager
    def _claim_folder(self) -> Iterator[int]:
        """Hold the lock of the trial's folder. Yields its descriptor.

        The runs inherit the lock. So a run that outlived its worker keeps it, and whoever comes
        next waits until that run has ended.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / ".lock", "ab") as file:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                self._pause()
                time.sleep(self._settings.poll)
            path = self._folder / "trial.json"
            if not path.exists():
                write_json(path, self._stages)
            elif read_json(path) != self._stages:
                raise ConfigError(
                    f"{self._folder} holds a trial of an earlier study: remove "
                    f"{self._folder.parent}, or give the study a name: hydra.sweeper.name=..."
                )
            yield file.fileno()

    def _run_stage(self, number: int, lock: int) -> dict[str, Any]:
        """Do a run, or what is left of it. Returns its summary."""
        code = 0
        log = self._folder / "output.log"
        begin = log.stat().st_size if log.exists() else 0
        if self._summary(number) is None:
            child = self._start_run(number, lock, log)
            try:
                while child.poll() is None:
                    self._pause()
                    self._follow(number)
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(self._settings.poll)
            finally:
                _stop(child)
            code = child.returncode
        self._follow(number)
        if (summary := self._summary(number)) is None:
            kind = TrialKilled if code < 0 or code in _STOPPED else TrialFailed
            raise kind(_explain_failure(log, begin, code))
        return summary

    def _start_run(self, number: int, lock: int, log: Path) -> subprocess.Popen[bytes]:
        settings, run = self._settings, self._run_folder(number)
        before = self._run_folder(number - 1) if number > 1 else None
        given = [f"resume={quote(str(run))}"] if run else [
            *insert_start(self._stages[number - 1], before / "model" if before else None),
            f"output_dir={quote(str(self._stage_folder(number)))}",
        ]  # fmt: skip
        cores = settings.cores or count_cores()
        env = {**without_launch(environment()),
               "OMP_NUM_THREADS": str(max(cores // settings.jobs, 1))}  # fmt: skip
        env.pop("WORDLE_RL_STORAGE", None)  # may hold a password, and a run needs no database
        with open(log, "ab") as output:
            return subprocess.Popen(
                [*(settings.command or train_command()), *given], stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, env=env, pass_fds=[lock],
                start_new_session=True,  # Ctrl-C is for the worker
            )  # fmt: skip

    def _follow(self, number: int) -> None:
        """Report new validations of the last stage; raise TrialPruned if the pruner says so.

        The pruner compares trials at validations of the same number. Equal numbers mean equal
        shares of the budget. The validation before training is not reported to Optuna. It appears
        only in the learning curve.
        """
        run = self._run_folder(number)
        path = run / "metrics.jsonl" if run else None
        if number < len(self._stages) or path is None or not path.exists():
            return
        if (size := path.stat().st_size) == self._size:
            return
        for record in self._records(number):
            if record["step"] > self._step:
                self._step = record["step"]
                self._take_record(record)
        self._size = size

    def _take_record(self, record: dict[str, Any]) -> None:
        self._games = record.get(GAMES) or self._games
        value = record.get(CURVE)
        if value is None:
            return
        self._curve.append((self._games, value))
        if record["step"] == 0:
            return
        self._count += 1
        if self._count not in self._reported:
            self._trial.report(value, self._count)
            if self._count < self._settings.budget.validations and self._trial.should_prune():
                raise optuna.TrialPruned

    def _stage_folder(self, number: int) -> Path:
        return self._folder / f"stage_{number}" if len(self._stages) > 1 else self._folder

    def _run_folder(self, number: int) -> Path | None:
        """The newest run folder of a stage that has a manifest."""
        found = self._stage_folder(number).glob("*/manifest.json")
        return max((file.parent for file in found), default=None)

    def _summary(self, number: int) -> dict[str, Any] | None:
        run = self._run_folder(number)
        if run is None or not (path := run / "summary.json").exists():
            return None
        summary = read_object(path)
        check_entries(path, summary, dict.fromkeys((OBJECTIVE, *TESTED, "best_step"), float | None))
        return summary

    def _records(self, number: int) -> list[dict[str, Any]]:
        run = self._run_folder(number)
        records = StepLog(run / "metrics.jsonl").read() if run else []
        kinds: dict[str, Any] = dict.fromkeys((CURVE, GAMES, SECONDS, SPREAD), float | None)
        for record in records:
            check_entries(f"{run}/metrics.jsonl step {record['step']}", record, kinds)
        return records

    def _note_figures(self, summary: dict[str, Any]) -> None:
        """Note what the tables show of a trial, so that they need no run folders.

        Games and seconds are sums over the steps of all stages; each step counts once, however
        often the trial was interrupted. Shares and rates are of the last stage.
        """
        stages = [[r for r in self._records(n + 1) if r["step"] > 0]
                  for n in range(len(self._stages))]  # fmt: skip
        run = self._run_folder(len(stages))
        if not all(stages):
            raise FolderError(f"{run}/metrics.jsonl: holds no training step")
        seconds = [sum(r.get(SECONDS) or 0.0 for r in stage) for stage in stages]
        games = [next((r[GAMES] for r in stage[::-1] if r.get(GAMES) is not None), 0.0)
                 for stage in stages]  # fmt: skip
        spread = [r[SPREAD] for r in stages[-1] if r.get(SPREAD) is not None]
        figures = {
            "run": str(run),
            "curve": self._curve,
            "best_step": summary.get("best_step"),
            "games": sum(games),
            "seconds": sum(seconds),
            "games_per_second": games[-1] / seconds[-1] if seconds[-1] else None,
            "no_spread": sum(spread) / len(spread) if spread else None,
            **{f"test_{name}": summary[name] for name in TESTED if name in summary},
            **({"lineage": summary["lineage"]} if "lineage" in summary else {}),
        }
        for name, figure in figures.items():
            self._trial.set_user_attr(name, figure)


def count_cores() -> int:
    """The cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Let a run save and end; then end what it left behind."""
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _explain_failure(log: Path, begin: int, code: int) -> str:
    """Why a run failed: its own error line, or the last line that it wrote."""
    with open(log, "rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    last = (errors or said or ["it wrote nothing"])[-1]
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{last} ({ended}, no summary.json; full output in {log})"
