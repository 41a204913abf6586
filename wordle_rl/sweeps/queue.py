"""The trials of a study as folders: which are done, which run, and which a worker takes next.

A trial has a folder, whose lock is held while it runs, and a row in study.json once it has ended. A
folder with neither was interrupted, and the next worker continues it. Workers share a study if they
share its folder, on one machine or on a disk that knows locks.
"""

import fcntl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import open_lock, read_json, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.draw import Notes, draw_point, is_poor
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.results import (
    CONFIRMATION,
    CONFIRMED,
    DONE,
    FAILED,
    RUNNING,
    SEARCH,
    Row,
    read_record,
)
from wordle_rl.sweeps.space import ARM, Params
from wordle_rl.sweeps.trial import Trial

TRIAL = "params.json"  # of a trial's folder: its params, its overrides, and Optuna's notes


@dataclass(kw_only=True)
class Round:
    """Trials of one plan: the search, or its winner and default with fresh seeds."""

    part: str  # SEARCH or CONFIRMATION
    plan: StudyPlan
    folder: Path  # of the trials
    failed: set[int] = field(init=False)  # before this command, which tries their points again

    def __post_init__(self) -> None:
        self.failed = {row["trial"] for row in self.list_rows() if row["state"] == FAILED}

    def list_rows(self) -> list[Row]:
        """The ended trials."""
        rows = read_record(self.plan.settings.place).get("trials", [])
        return [row for row in rows if row["round"] == self.part]

    def count_left(self) -> int:
        """How many trials are not done yet, running ones included."""
        return max(self.plan.n_trials - sum(row["state"] in DONE for row in self.list_rows()), 0)

    def list_missing(self) -> list[Params]:
        """Points of a grid that are not done."""
        done = [self._pick(row) for row in self.list_rows() if row["state"] in DONE]
        return [point for point in self.plan.points or () if point not in done]

    def take(self) -> tuple[Trial | None, bool]:
        """A trial to run, if there is one, and whether any run. For one worker at a time."""
        trials = self._list_trials()
        running = [number for number, row in trials.items() if row["state"] == RUNNING]
        for number in running:
            if (trial := self._claim(number, trials[number]["params"])) is not None:
                return trial, True
        number = 1 + max([*trials, *self._list_folders()], default=-1)
        if (drawn := self._choose(trials, number)) is None:
            return None, bool(running)
        params, notes = self._pick(drawn[0]), drawn[1]
        path = self._find_folder(number) / TRIAL
        path.parent.mkdir(parents=True)
        write_json(
            path, {"params": params, "overrides": self.plan.build_run(params), "notes": notes}
        )
        return self._claim(number, params), True

    def _is_poor(self, number: int, wins: Sequence[float]) -> bool:
        """Whether a trial should stop after these validations."""
        if self.part == CONFIRMATION or self.plan.settings.pruner is None:
            return False
        poor, notes = is_poor(self.plan, self._list_trials(), number, wins)
        about = read_json(path := self._find_folder(number) / TRIAL)
        write_json(path, {**about, "notes": {**about["notes"], **notes}})
        return poor

    def _list_trials(self) -> dict[int, Row]:
        """All trials by number, each with its `params`."""
        paths = {number: self._find_folder(number) / TRIAL for number in self._list_folders()}
        found = {n: {"state": RUNNING, **read_json(p)} for n, p in paths.items() if p.exists()}
        for row in self.list_rows():
            found[row["trial"]] = {**found.get(row["trial"], {}), **row, "params": self._pick(row)}
        return dict(sorted(found.items()))

    def _pick(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a row, in their order."""
        return {name: row[name] for name in self.plan.space}

    def _list_folders(self) -> list[int]:
        return [int(path.name) for path in self.folder.glob("*") if path.name.isdigit()]

    def _find_folder(self, number: int) -> Path:
        return self.folder / f"{number:04d}"

    def _choose(self, trials: Mapping[int, Row], number: int) -> tuple[Params, Notes] | None:
        """The point of a new trial; None if there is none."""
        if self.plan.points is None:
            drawn = sum(row["state"] != FAILED for row in trials.values())
            return draw_point(self.plan, trials, number) if drawn < self.plan.n_trials else None
        tried = [row["params"] for n, row in trials.items() if n not in self.failed]
        return next(((point, Notes()) for point in self.plan.points if point not in tried), None)

    def _claim(self, number: int, params: Params) -> Trial | None:
        """A trial with the lock of its folder; None while another process has it.

        The run of a trial inherits the lock, so after a worker's death it is free when that ends.
        """
        folder, overrides = self._find_folder(number), self.plan.build_run(params)
        known = self.plan.points is None or params in self.plan.points
        if not known or read_json(folder / TRIAL)["overrides"] != overrides:
            raise ConfigError(
                f"{folder} holds a trial of an earlier study: remove {self.folder}, or give the "
                "study a name: hydra.sweeper.name=..."
            )
        lock = open_lock(folder / ".lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return Trial(
            number=number,
            params=params,
            overrides=overrides,
            folder=folder,
            lock=lock,
            settings=self.plan.settings,
            is_poor=partial(self._is_poor, number),
        )


def open_search(plan: StudyPlan) -> Round:
    """The trials that the study is about."""
    return Round(part=SEARCH, plan=plan, folder=plan.settings.place / "trials")


def open_confirmation(plan: StudyPlan, number: int, winner: Params) -> Round:
    """The winner and the default again, with fresh seeds."""
    settings = plan.settings
    best = {name: value for name, value in winner.items() if name != "seed"}
    # A study that varies seeds alone has no default: each trial is the config as it is.
    arms = ["winner"] if best == (settings.default or {}) else ["winner", "default"]
    points = [{ARM: arm, "seed": seed} for seed in settings.confirm_seeds for arm in arms]
    about = {**vars(plan), "space": CONFIRMED, "points": points, "winner": best}
    folder = settings.place / "trials" / f"{settings.name}-confirm-{number}"
    return Round(part=CONFIRMATION, plan=Confirmation(**about), folder=folder)


@dataclass(frozen=True, kw_only=True)
class Confirmation(StudyPlan):
    """Trials of the winner and the default that report on the test secrets."""

    winner: Params

    def build_run(self, params: Params) -> list[str]:
        arms = {"winner": self.winner, "default": self.settings.default or {}}
        run = super().build_run(arms[str(params[ARM])])
        return [*run, f"seed={params['seed']}", "trainer.report=true"]
