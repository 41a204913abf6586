"""One go at one trial: its stages as child processes, their validation wins as Optuna's reports."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from wordle_rl.runs.files import RunFolderError, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps import progress
from wordle_rl.sweeps.child_run import ChildFailed, Run, run_child
from wordle_rl.sweeps.records import (
    CURVE,
    GAMES,
    OBJECTIVE,
    SECONDS,
    SPREAD,
    TESTED,
    read_stages,
)
from wordle_rl.sweeps.rounds import Phase
from wordle_rl.sweeps.samplers import suggest
from wordle_rl.sweeps.settings import StudySettings
from wordle_rl.sweeps.storage import Worker, root_number

_STAGES = "trial.json"  # in a trial's folder: the overrides of its stages


class TrialFailed(Exception):
    """A trial failed, and the study goes on."""


class Stopped(Exception):
    """The worker was asked to stop; the trial will be gone on with."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """What the attempts of a worker share."""

    settings: StudySettings
    worker: Worker
    stop: threading.Event
    say: Callable[[str], None]
    threads: Callable[[optuna.Study], int]  # for the next child


class Attempt:
    """Optuna's objective, for one trial."""

    def __init__(self, means: Means, study: optuna.Study, phase: Phase, begun: Callable) -> None:
        """begun: called once the trial is taken, and seen by others to be."""
        self._means, self._study, self._phase, self._begun = means, study, phase, begun
        self.error: Exception | None = None  # what it raised, unless Optuna expects it
        self._id: int | None = None
        self._curve: list[tuple[float, float]] = []  # games so far, validation wins
        self._count = 0  # validations after the start
        self._games = self._beat = 0.0

    def __call__(self, trial: optuna.Trial) -> float:
        try:
            return self._carried_out(trial)
        except (optuna.TrialPruned, TrialFailed, Stopped):
            raise
        except Exception as error:
            self.error = error
            raise

    def _carried_out(self, trial: optuna.Trial) -> float:
        self._id = trial._trial_id
        self._means.worker.sign(trial)
        self._begun()
        frozen = self.frozen()
        if self._phase.points is not None and "fixed_params" not in frozen.system_attrs:
            trial.set_user_attr("surplus", True)  # another worker took the last one meanwhile
            raise TrialFailed
        params = suggest(trial, self._phase.space)
        folder = self._phase.folder / f"{root_number(frozen):04d}"
        stages = self._phase.stages(params)
        runs = self._runs(folder, stages)
        gone_on_with = _claimed(folder, stages)
        self._means.say(progress.start(trial.number, params, folder, gone_on_with))
        try:
            return self._value(trial, runs)
        except (ChildFailed, RunFolderError) as error:
            trial.set_user_attr("cause", str(error))
            raise TrialFailed from None

    def _value(self, trial: optuna.Trial, runs: Sequence[Run]) -> float:
        """Carry out the stages. Returns the objective of the last one."""
        summary: dict[str, Any] = {}
        try:
            for number, _ in enumerate(runs):
                summary = self._stage(trial, runs, number)
        except optuna.TrialPruned:
            self._keep_figures(trial, runs, {})
            raise
        value = summary.get(OBJECTIVE)
        if value is None:
            raise ChildFailed(f"{OBJECTIVE} in {runs[-1].folder} is {value}, not a number")
        self._keep_figures(trial, runs, summary)
        return float(value)

    def _keep_figures(
        self, trial: optuna.Trial, runs: Sequence[Run], summary: dict[str, Any]
    ) -> None:
        for name, figure in figures(runs, summary, self._curve).items():
            trial.set_user_attr(name, figure)

    def frozen(self) -> FrozenTrial:
        assert self._id is not None
        return self._study._storage.get_trial(self._id)

    def taken(self) -> bool:
        """Whether others took this worker for dead, and the trial from it."""
        return self._id is not None and self.frozen().state != TrialState.RUNNING

    def _runs(self, folder: Path, stages: Sequence[Sequence[str]]) -> list[Run]:
        command = self._means.settings.command or [sys.executable, str(ROOT / "train.py")]
        several = len(stages) > 1
        return [
            Run(
                command=tuple(command), overrides=tuple(stage),
                folder=folder / f"stage_{number}" if several else folder,
            )
            for number, stage in enumerate(stages, 1)
        ]  # fmt: skip

    def _stage(self, trial: optuna.Trial, runs: Sequence[Run], number: int) -> dict[str, Any]:
        before = runs[number - 1].run_folder() if number else None
        run = runs[number].with_start(before / "model" if before else None)
        last = number == len(runs) - 1
        return run_child(
            run,
            threads=self._means.threads(self._study),
            metrics=lambda record: self._report(trial, record) if last else None,
            check=lambda: self._check(trial),
            poll=self._means.settings.poll,
        )

    def _check(self, trial: optuna.Trial) -> None:
        if self._means.stop.is_set():
            raise Stopped
        if time.monotonic() - self._beat > self._means.settings.heartbeat:
            self._means.worker.beat(trial)
            self._beat = time.monotonic()

    def _report(self, trial: optuna.Trial, record: dict[str, Any]) -> None:
        """Validations are numbered 1, 2, ... so that trials are compared at equal shares of their
        budget; the one of the start policy, before any training, is only drawn."""
        self._games = record.get(GAMES) or self._games
        value = record.get(CURVE)
        if value is None:
            return
        self._curve.append((self._games, value))
        if record["step"] == 0:
            return
        self._count += 1
        trial.report(value, self._count)
        if self._count < self._phase.validations and trial.should_prune():
            raise optuna.TrialPruned


def _claimed(folder: Path, stages: list[list[str]]) -> bool:
    """Make a trial's folder its own; whether it was before, and something ran in it.

    Raises ConfigError where something else did: the trial of an earlier study, say.
    """
    path, began = folder / _STAGES, any(folder.rglob("manifest.json"))
    if not began:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, stages)
    elif not path.exists() or _read_stages(path) != stages:
        raise ConfigError(
            f"{folder} holds another trial, of an earlier study: remove {folder.parent}, or set "
            "hydra.sweeper.trials to a new folder"
        )
    return began


def _read_stages(path: Path) -> list[list[str]]:
    try:
        return read_stages(path)
    except RunFolderError as error:
        raise ConfigError(f"{error}; remove {path.parent}, and its trial begins anew") from None


def figures(
    runs: Sequence[Run], summary: dict[str, Any], curve: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """What a notebook wants to know of a trial, so that it needs no run folders.

    Counts and seconds are those of the steps of all stages, each counted once however often the
    trial was interrupted; shares and rates are of the last stage. Raises RunFolderError.
    """
    records = [[r for r in run.records() if r["step"] > 0] for run in runs]
    for run, found in zip(runs, records, strict=True):
        if not found:
            raise RunFolderError(f"{run.run_folder()}/metrics.jsonl: no step of training is in it")
    last = records[-1]
    seconds = [sum(r.get(SECONDS) or 0.0 for r in stage) for stage in records]
    games = [next((r[GAMES] for r in stage[::-1] if r.get(GAMES) is not None), 0.0)
             for stage in records]  # fmt: skip
    spread = [r[SPREAD] for r in last if r.get(SPREAD) is not None]
    tested = {f"test_{name}": summary[name] for name in TESTED if name in summary}
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
