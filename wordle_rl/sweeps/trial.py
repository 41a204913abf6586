"""One trial of a study: a training run in a process of its own.

A run is `python train.py` and knows nothing of studies. All that is known about it comes from its
run folder: metrics.jsonl while it runs, and summary.json as the only proof of success.
"""

import fcntl
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna

from wordle_rl.runs.config import read_config
from wordle_rl.runs.files import StepLog, open_lock, read_json, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT, environment, quote, train_command
from wordle_rl.runs.processes import without_launch
from wordle_rl.sweeps.plan import StudySettings

TESTED = ("win_rate", "mean_guesses_with_losses")  # of summary.json: its report on the test secrets
CURVE, GAMES, SECONDS, SPREAD = "val/win_rate", "total/games", "time/step", "groups/zero_spread"
POLL = 1.0  # seconds between looks at a run
PATIENCE = 60.0  # seconds that a run may take to save after it was asked to stop
RETRIES = 3  # times that a trial continues after its run, or its worker, was killed
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a run that saved


class TrialFailed(Exception):
    """A trial failed; the message is one line with the cause."""


class TrialRun:
    """The run of one trial, in its folder."""

    def __init__(
        self,
        trial: optuna.Trial,
        folder: Path,
        overrides: list[str],
        settings: StudySettings,
        pause: Callable[[], None],
    ) -> None:
        """pause: called about every second; it may raise to stop the trial."""
        self._trial, self._folder, self._overrides = trial, folder, overrides
        self._settings, self._pause = settings, pause
        self._log = folder / "output.log"
        self._file, self._read = -1, 0  # metrics.jsonl, and its bytes that were read
        self._step, self._wins = 0, list[float]()  # what they say: the last step, validations
        self.seen = "begins"  # what they say, in words

    @property
    def path(self) -> Path | None:  # the newest run folder
        return max((file.parent for file in self._folder.glob("*/manifest.json")), default=None)

    def work(self) -> float:
        """Do what is left of the trial. Returns its validation wins, and notes its figures.

        Raises TrialFailed, optuna.TrialPruned, ConfigError, and what pause raises.
        """
        with self._claim_folder() as lock:
            attempts = 1 + RETRIES
            while (summary := self._read_summary()) is None:
                begin = self._log.stat().st_size if self._log.exists() else 0
                code = self._run_to_its_end(lock)
                if self._read_summary() is None:
                    attempts -= 1
                    cause = self._explain_failure(begin, code)
                    if not attempts or not (code < 0 or code in _STOPPED):
                        raise TrialFailed(cause)
                    print(f"trial {self._trial.number} was killed and continues: {cause}")
            value = summary.get("val_win_rate")  # validation wins of the best checkpoint
            if value is None or not math.isfinite(value):
                raise TrialFailed(f"val_win_rate in {self.path} is {value}, not a number")
            self._follow(prune=False)
            self._note_figures(summary)
        return float(value)

    @contextmanager
    def _claim_folder(self) -> Iterator[int]:
        """Hold the lock of the trial's folder, and yield its descriptor, which the run inherits.

        So whoever comes after a worker's death waits until its run has ended.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with open_lock(self._folder / ".lock") as file:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                self._pause()
                time.sleep(POLL)
            path = self._folder / "trial.json"
            if not path.exists():
                write_json(path, self._overrides)
            elif read_json(path) != self._overrides:
                raise ConfigError(
                    f"{self._folder} holds a trial of an earlier study: remove "
                    f"{self._folder.parent}, or give the study a name: hydra.sweeper.name=..."
                )
            yield file.fileno()

    def _run_to_its_end(self, lock: int) -> int:
        """Start the run, or continue it, and follow it. Returns its exit code."""
        child = self._start_run(lock)
        try:
            while child.poll() is None:
                self._pause()
                self._follow(prune=True)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(POLL)
        except optuna.TrialPruned:
            _stop(child)
            self._note_figures({})
            raise
        finally:
            _stop(child)
        return child.returncode

    def _start_run(self, lock: int) -> subprocess.Popen[bytes]:
        given = (
            [f"resume={quote(str(self.path))}"]
            if self.path
            else [*self._overrides, f"output_dir={quote(str(self._folder))}"]
        )
        usable = getattr(os, "sched_getaffinity", None)  # not on a Mac
        cores = len(usable(0)) if usable else os.cpu_count() or 1
        threads = max(cores // self._settings.jobs, 1)
        env = {**without_launch(environment()), "OMP_NUM_THREADS": str(threads)}
        env.pop("WORDLE_RL_STORAGE", None)  # may hold a password, and a run needs no database
        with open(self._log, "ab") as output:
            return subprocess.Popen(
                [*train_command(), *given],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=[lock],
                start_new_session=True,  # Ctrl-C is for the worker
            )

    def _follow(self, *, prune: bool) -> None:
        """Report new validations but the one before training; if asked, raise TrialPruned.

        The pruner compares validations of the same number, which mean equal shares of the budget.
        """
        path = self.path / "metrics.jsonl" if self.path else None
        if path is None or not path.exists():
            return
        file = path.stat().st_ino
        if file != self._file:  # a resumed run has cut it off, in a file of its own
            self._file, self._read, self._step, self._wins = file, 0, 0, []
        records, self._read = StepLog(path).read_on(self._read)
        if not records:
            return
        wins = self._wins
        wins += [r[CURVE] for r in records if r["step"] and r.get(CURVE) is not None]
        self._step = max(self._step, *(record["step"] for record in records))
        steps = read_config(path.parent).get("trainer", {}).get("steps", "?")
        self.seen = f"step {self._step}/{steps}"
        self.seen += f", validation {100 * wins[-1]:.1f} %" if wins else ""
        known = self._trial.storage.get_trial(self._trial._trial_id).intermediate_values
        for number, value in enumerate(wins, 1):
            if number not in known:
                self._trial.report(value, number)
                last = number >= self._settings.budget.validations
                if prune and not last and self._trial.should_prune():
                    raise optuna.TrialPruned

    def _read_summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json" if self.path else None
        return read_json(path) if path and path.exists() else None

    def _read_records(self) -> list[dict[str, Any]]:
        return StepLog(self.path / "metrics.jsonl").read() if self.path else []

    def _note_figures(self, summary: dict[str, Any]) -> None:
        """Note what the tables show of a trial, so that they need no run folder."""
        records = self._read_records()
        steps = [record for record in records if record["step"] > 0]
        spread = [record[SPREAD] for record in steps if record.get(SPREAD) is not None]
        figures = {
            "run": str(self.path).removeprefix(f"{ROOT}/"),
            "best_step": summary.get("best_step"),
            "games": max((record.get(GAMES) or 0.0 for record in steps), default=0.0),
            "seconds": sum(record.get(SECONDS) or 0.0 for record in steps),
            "no_spread": sum(spread) / len(spread) if spread else None,
            **{f"test_{name}": summary[name] for name in TESTED if name in summary},
            "curve": [[r.get(GAMES) or 0.0, r[CURVE]] for r in records if r.get(CURVE) is not None],
            "lineage": summary.get("lineage"),
            "metrics": average_last_quarter(steps, self._settings.analysis.metrics),
        }
        for name, figure in figures.items():
            self._trial.set_user_attr(name, figure)

    def _explain_failure(self, begin: int, code: int) -> str:
        """Why a run failed: its own error line, or the last line that it wrote."""
        text = self._log.read_bytes()[begin:].decode("utf-8", "replace")
        said = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
        last = (errors or said or ["it wrote nothing"])[-1]
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{last} ({ended}, no summary.json; full output in {self._log})"


def average_last_quarter(
    steps: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, float]:
    """The mean of each metric over the last quarter of the steps; none for one without a value."""
    last = steps[-math.ceil(len(steps) / 4) :]
    known = {name: [row[name] for row in last if row.get(name) is not None] for name in names}
    return {name: sum(values) / len(values) for name, values in known.items() if values}


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Let a run save and end; then end what it left behind."""
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
