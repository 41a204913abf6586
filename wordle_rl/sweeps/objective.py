"""What Optuna calls the objective: runs one trial and returns its validation wins.

The stages of a trial are child processes. The validations of the last stage become Optuna's
reports, from which a pruner decides whether to stop the trial.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from wordle_rl.runs.files import write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import train_command
from wordle_rl.runs.untrusted import FolderError
from wordle_rl.sweeps import progress
from wordle_rl.sweeps.child_run import ChildFailed, ChildRun, run_child
from wordle_rl.sweeps.dead_workers import WorkerLock, first_number
from wordle_rl.sweeps.records import (
    CURVE,
    GAMES,
    LINEAGE,
    OBJECTIVE,
    SECONDS,
    SPREAD,
    TESTED,
    read_stages,
)
from wordle_rl.sweeps.rounds import Round
from wordle_rl.sweeps.samplers import suggest_params
from wordle_rl.sweeps.settings import StudySettings
from wordle_rl.sweeps.standby import Standby

_STAGES = "trial.json"  # in a trial's folder: the overrides of its stages


class TrialFailed(Exception):
    """A trial failed, and the study continues."""


class TrialStopped(Exception):
    """The worker was asked to stop; another command will continue the trial."""


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """What the trials of one worker share."""

    settings: StudySettings
    lock: WorkerLock
    stop: threading.Event
    print_line: Callable[[str], None]
    count_threads: Callable[[optuna.Study], int]  # for the next child
    standby: Standby | None = None  # None: every run is a process that is started for it


class TrialObjective:
    """Optuna's objective, for one trial."""

    def __init__(
        self, context: WorkerContext, study: optuna.Study, part: Round, on_taken: Callable[[], None]
    ) -> None:
        """on_taken: called once the trial is this worker's and others can see that."""
        self._context, self._study, self._round = context, study, part
        self._on_taken = on_taken
        self.error: Exception | None = None  # what it raised, unless Optuna expects it
        self._id: int | None = None
        self._curve: list[tuple[float, float]] = []  # games so far, validation wins
        self._count = 0  # validations after the start
        self._games = 0.0

    def __call__(self, trial: optuna.Trial) -> float:
        try:
            return self._run_trial(trial)
        except (optuna.TrialPruned, TrialFailed, TrialStopped):
            raise
        except Exception as error:
            self.error = error
            raise

    def _run_trial(self, trial: optuna.Trial) -> float:
        self._id = trial._trial_id
        self._context.lock.sign(trial)
        self._on_taken()
        frozen = self.read_trial()
        if self._round.points is not None and "fixed_params" not in frozen.system_attrs:
            trial.set_user_attr("surplus", True)  # another worker took the last queued trial
            raise TrialFailed
        params = suggest_params(trial, self._round.space)
        folder = self._round.folder / f"{first_number(frozen):04d}"
        stages = self._round.stages(params)
        runs = self._list_runs(folder, stages)
        resumed = _claim_folder(folder, stages)
        self._context.print_line(progress.format_start(trial.number, params, folder, resumed))
        try:
            return self._run_stages(trial, runs)
        except (ChildFailed, FolderError) as error:
            trial.set_user_attr("cause", str(error))
            raise TrialFailed from None

    def _run_stages(self, trial: optuna.Trial, runs: Sequence[ChildRun]) -> float:
        """Run all stages. Returns the objective of the last one."""
        summary: dict[str, Any] = {}
        try:
            for number, _ in enumerate(runs):
                summary = self._run_stage(trial, runs, number)
        except optuna.TrialPruned:
            self._store_figures(trial, runs, {})
            raise
        value = summary.get(OBJECTIVE)
        if value is None:
            raise ChildFailed(f"{OBJECTIVE} in {runs[-1].folder} is {value}, not a number")
        self._store_figures(trial, runs, summary)
        return float(value)

    def _store_figures(
        self, trial: optuna.Trial, runs: Sequence[ChildRun], summary: dict[str, Any]
    ) -> None:
        for name, figure in collect_figures(runs, summary, self._curve).items():
            trial.set_user_attr(name, figure)

    def read_trial(self) -> FrozenTrial:
        """The trial as it is in the storage now."""
        assert self._id is not None
        return self._study._storage.get_trial(self._id)

    def was_taken_over(self) -> bool:
        """Whether others believed this worker dead and took the trial."""
        return self._id is not None and self.read_trial().state != TrialState.RUNNING

    def _list_runs(self, folder: Path, stages: Sequence[Sequence[str]]) -> list[ChildRun]:
        command = self._context.settings.command or train_command()
        several = len(stages) > 1
        return [
            ChildRun(
                command=tuple(command), overrides=tuple(stage),
                folder=folder / f"stage_{number}" if several else folder,
            )
            for number, stage in enumerate(stages, 1)
        ]  # fmt: skip

    def _run_stage(
        self, trial: optuna.Trial, runs: Sequence[ChildRun], number: int
    ) -> dict[str, Any]:
        before = runs[number - 1].run_folder() if number else None
        run = runs[number].with_start(before / "model" if before else None)
        last = number == len(runs) - 1
        threads = self._context.count_threads(self._study)
        return run_child(
            run,
            threads=threads,
            take=lambda: self._take_process(threads, more=not last),
            metrics=lambda record: self._report(trial, record) if last else None,
            check=self._check_stop,
            poll=self._context.settings.poll,
        )

    def _take_process(self, threads: int, *, more: bool) -> subprocess.Popen[bytes] | None:
        """The process that waits for a run, and start the next one if a run follows.

        more: whether the trial has another stage.
        """
        standby = self._context.standby
        if standby is None:
            return None
        taken = standby.take(threads)
        if more or self._round.may_start(self._study.get_trials(deepcopy=False)):
            standby.prepare(threads)
        return taken

    def _check_stop(self) -> None:
        if self._context.stop.is_set():
            raise TrialStopped

    def _report(self, trial: optuna.Trial, record: dict[str, Any]) -> None:
        """Report a validation to Optuna, and stop the trial if the pruner says so.

        The pruner compares trials at validations of the same number. Equal numbers mean equal
        shares of the budget. The validation before training is not reported to Optuna. It appears
        only in the learning curve.
        """
        self._games = record.get(GAMES) or self._games
        value = record.get(CURVE)
        if value is None:
            return
        self._curve.append((self._games, value))
        if record["step"] == 0:
            return
        self._count += 1
        trial.report(value, self._count)
        if self._count < self._round.validations and trial.should_prune():
            raise optuna.TrialPruned


def _claim_folder(folder: Path, stages: list[list[str]]) -> bool:
    """Claim a trial's folder. Returns whether some of the trial has already run there.

    Raises ConfigError when something else ran there, such as a trial of an earlier study.
    """
    path, resumed = folder / _STAGES, any(folder.rglob("manifest.json"))
    if not resumed:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, stages)
    elif not path.exists() or _read_stages(path) != stages:
        raise ConfigError(
            f"{folder} holds a trial of an earlier study: remove {folder.parent}, or set "
            "hydra.sweeper.trials to a new folder"
        )
    return resumed


def _read_stages(path: Path) -> list[list[str]]:
    try:
        return read_stages(path)
    except FolderError as error:
        raise ConfigError(f"{error}; remove {path.parent} to start the trial again") from None


def collect_figures(
    runs: Sequence[ChildRun], summary: dict[str, Any], curve: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """What the report shows of a trial, so that it needs no run folders.

    Games and seconds are sums over the steps of all stages; each step counts once, however often
    the trial was interrupted. Shares and rates are of the last stage. Raises FolderError.
    """
    records = [[r for r in run.records() if r["step"] > 0] for run in runs]
    for run, found in zip(runs, records, strict=True):
        if not found:
            raise FolderError(f"{run.run_folder()}/metrics.jsonl: holds no training step")
    last = records[-1]
    seconds = [sum(r.get(SECONDS) or 0.0 for r in stage) for stage in records]
    games = [next((r[GAMES] for r in stage[::-1] if r.get(GAMES) is not None), 0.0)
             for stage in records]  # fmt: skip
    spread = [r[SPREAD] for r in last if r.get(SPREAD) is not None]
    tested = {f"test_{name}": summary[name] for name in TESTED if name in summary}
    tested |= {LINEAGE: summary[LINEAGE]} if LINEAGE in summary else {}
    return {
        "run": str(runs[-1].run_folder()),
        "curve": list(curve),
        "best_step": summary.get("best_step"),
        "games": sum(games),
        "seconds": sum(seconds),
        "games_per_second": games[-1] / seconds[-1] if seconds[-1] else None,
        "no_spread": sum(spread) / len(spread) if spread else None,
        **tested,
    }
