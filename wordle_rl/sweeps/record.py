"""What a study keeps in its folder: study.json, games.csv.xz, and a folder for each trial.

study.json has the settings and a row for each trial. A worker holds the lock of a trial's folder
while it runs, so a row that says running beside a free lock was interrupted, and the next worker
continues it. Workers share a study if they share its folder, on one machine or on a disk that knows
locks.

The two files are enough to judge a study, and to continue it on another machine. A line of
games.csv.xz is a game of the first or the last validation of a trial, or of any for a measure over
time. A refused guess ends with !, and an answer without a guess is -.
"""

import fcntl
import lzma
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd
from optuna.distributions import CategoricalDistribution

from wordle_rl.runs.files import StepLog, open_lock, read_json, write_bytes, write_json
from wordle_rl.runs.paths import CONFIG_DIR, ROOT, shorten
from wordle_rl.sweeps.draw import draw_point, is_poor
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.space import ARM, Params, Space, list_grid_points, name_arm
from wordle_rl.sweeps.trial import COMPLETE, FAILED, PRUNED, RUNNING, WINS, Row, Trial

RECORD, GAMES = "study.json", "games.csv.xz"
SEARCH, CONFIRMATION = "search", "confirmation"  # the rounds of a study
DONE = (COMPLETE, PRUNED)


def read_record(folder: Path) -> dict[str, Any]:
    """The content of study.json; empty without the file."""
    path = folder / RECORD
    return read_json(path) if path.exists() else {}


@contextmanager
def lock_study(folder: Path) -> Iterator[None]:
    """Let one worker at a time into the block, which alone may write."""
    folder.mkdir(parents=True, exist_ok=True)
    with open_lock(folder / ".lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def begin_record(plan: StudyPlan) -> None:
    """Write the settings of a study. The command that started it stays."""
    settings = plan.settings
    with lock_study(settings.place):
        before = read_record(settings.place)
        plan.check_identity(before.get("identity"))
        record = {
            "name": settings.name,
            "question": settings.question,
            "command": before.get("command", _typed_command()),
            "identity": plan.identity(),
            "analysis": asdict(settings.analysis),
            "effects": before.get("effects", []),  # written with the page
            "trials": before.get("trials", []),
        }
        if record != before:  # another order of the same would change a shipped file
            write_json(settings.place / RECORD, record)


def _typed_command() -> list[str]:
    """The words that started this study, with the folder of its user's own parts."""
    script, *words = sys.argv
    folder = os.environ.get(CONFIG_DIR)  # where the commands keep --config-dir
    return [script, *([f"--config-dir={shorten(Path(folder))}"] if folder else []), *words]


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
        rows = read_record(self.plan.settings.place).get("trials", [])
        return [row for row in rows if row["round"] == self.part]

    def count_left(self) -> int:
        """How many trials are not done yet, running ones included."""
        count = sum(row["state"] in DONE for row in self.list_rows())
        return max(self.plan.n_trials - count, 0)

    def take(self) -> tuple[Trial | None, bool]:
        """A trial to run, if there is one, and whether any run."""
        with lock_study(self.plan.settings.place):
            rows = self.list_rows()
            runs = [row for row in rows if row["state"] == RUNNING]
            for row in runs:
                if (trial := self._claim(row)) is not None:
                    return trial, True
            folders = [int(path.name) for path in self.folder.glob("*") if path.name.isdigit()]
            number = 1 + max([*(row["trial"] for row in rows), *folders], default=-1)
            if (choice := self._choose(rows, number)) is None:
                return None, bool(runs)
            row = {"trial": number, "round": self.part, "state": RUNNING, WINS: None}
            row |= {**self.plan.pick(choice), **choice}
            self._write(row)
            return self._claim(row), True

    def end(self, trial: Trial, found: Row) -> None:
        """Keep what came of a trial. found: its state, wins and figures."""
        with lock_study(self.plan.settings.place):
            [row] = [row for row in self.list_rows() if row["trial"] == trial.number]
            self._write({**row, **found})
        trial.lock.close()

    def _write(self, row: Row) -> None:
        """Write a row, in the place of the trial's earlier one."""
        before = read_record(self.plan.settings.place)
        rows = {
            (one["round"] != SEARCH, one["trial"]): one
            for one in [*before.get("trials", []), row]
            if one["round"] in (SEARCH, self.part)  # with a new trial, another may be the winner
        }
        trials = [rows[key] for key in sorted(rows)]
        write_json(self.plan.settings.place / RECORD, {**before, "trials": trials})

    def _is_poor(self, number: int, wins: Sequence[float]) -> bool:
        """Whether a trial should stop after these validations."""
        if self.plan.settings.pruner is None:
            return False
        with lock_study(self.plan.settings.place):
            rows = self.list_rows()
            poor, notes = is_poor(self.plan, rows, number, wins)
            [row] = [row for row in rows if row["trial"] == number]
            self._write({**row, "notes": {**row.get("notes", {}), **notes}})
        return poor

    def _choose(self, rows: Sequence[Row], number: int) -> Params | None:
        """The point of a new trial, with Optuna's notes; None if there is none."""
        if self.plan.points is None:
            count = sum(row["state"] != FAILED for row in rows)
            return draw_point(self.plan, rows, number) if count < self.plan.n_trials else None
        tried = [self.plan.pick(row) for row in rows if row["trial"] not in self.failed]
        return next((point for point in self.plan.points if point not in tried), None)

    def _claim(self, row: Row) -> Trial | None:
        """A trial with the lock of its folder; None while another process has it.

        The run of a trial inherits the lock, so after a worker's death it is free when that ends.
        """
        folder = self.folder / f"{row['trial']:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        lock: BinaryIO = open_lock(folder / ".lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return Trial(
            number=row["trial"],
            params=self.plan.pick(row),
            plan=self.plan,
            folder=folder,
            lock=lock,
            is_poor=partial(self._is_poor, row["trial"]),
        )


def open_search(plan: StudyPlan) -> Round:
    """The trials that the study is about."""
    return Round(part=SEARCH, plan=plan, folder=plan.settings.place / "trials")


def open_confirmation(plan: StudyPlan, number: int, winner: Params) -> Round:
    """The winner and the default again, with fresh seeds; they report on the test secrets."""
    settings = plan.settings
    best = {name: value for name, value in winner.items() if name != "seed"}
    arms, default = {"winner": plan.list_own(best)}, cast(Params, settings.default or {})
    if best != default:  # as where seeds alone vary
        arms["default"] = plan.list_own(default)
    choices = {ARM: arms, "seed": settings.confirm_seeds}
    space = {name: CategoricalDistribution(tuple(values)) for name, values in choices.items()}
    confirmation = replace(
        plan,
        settings=replace(settings, arms=arms, sampler=None, n_trials=None, pruner=None),
        space=space,
        points=list_grid_points(space),
        overrides=[*plan.overrides, "trainer.report=true"],
    )
    folder = settings.place / "trials" / f"{settings.name}-confirm-{number}"
    return Round(part=CONFIRMATION, plan=confirmation, folder=folder)


def write_games(plan: StudyPlan) -> None:
    """Write games.csv.xz. Trials whose run folder is not here keep the games that it has."""
    path = plan.settings.place / GAMES
    with lock_study(path.parent):
        table = pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else None
        parts = []
        for row in read_record(path.parent)["trials"]:
            log = ROOT / row.get("run", "") / "validation_games.jsonl"
            if row["state"] in DONE and log.is_file():
                parts.append(_read_games(plan, row, log))
            elif table is not None:
                mask = (table["round"] == row["round"]) & (table["trial"] == str(row["trial"]))
                parts.append(table[mask])
        if parts and (games := pd.concat(parts)).size:
            text = games.to_csv(index=False, lineterminator="\n")
            write_bytes(path, lzma.compress(text.encode(), preset=9))


def name_trial(row: Row, space: Space) -> str:
    """The name of a trial's arm. space: of the search."""
    return name_arm(row, space) if row["round"] == SEARCH else row[ARM]


def _read_games(plan: StudyPlan, row: Row, log: Path) -> Any:
    about = {
        "round": row["round"],
        "trial": row["trial"],
        "arm": name_trial(row, plan.space),
        "seed": row.get("seed", 0),
    }
    games = pd.DataFrame(
        {**about, "step": game["step"], "secret": game["secret"], "guesses": _spell(game)}
        for game in StepLog(log).records()
    )
    if games.empty or plan.settings.analysis.measure.endswith("_over_time"):
        return games
    return games[games.step.isin([0, games.step.max()])]


def _spell(game: Mapping[str, Any]) -> str:
    """The guesses of a game, - for one that could not be read and ! behind a refused one."""
    pairs = zip(game["guesses"], game["kinds"], strict=True)
    return " ".join(
        f"{word or '-'}{'!' if word and kind != 'accepted' else ''}" for word, kind in pairs
    )
