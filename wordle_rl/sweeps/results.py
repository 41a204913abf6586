"""What a study leaves in its folder: study.json and games.csv.xz.

They are enough to judge the study, and to continue it on another machine. study.json has its
settings and its ended trials. A line of games.csv.xz is a game of the first or the last validation
of a trial, or of any for a measure over time. A refused guess ends with !, and an answer without a
guess is -.
"""

import json
import lzma
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
from optuna.distributions import CategoricalDistribution, IntDistribution

from wordle_rl.runs.files import StepLog, json_bytes, read_json, write_bytes, write_json
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.space import ARM, Space, name_arm

RECORD, GAMES = "study.json", "games.csv.xz"
SEARCH, CONFIRMATION = "search", "confirmation"  # the rounds of a study
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"  # the states of an ended trial
DONE = (COMPLETE, PRUNED)
RUNNING = "running"  # or interrupted: a trial without a row in study.json
CONFIRMED: Space = {  # by a confirmation; more seeds may follow later
    ARM: CategoricalDistribution(("winner", "default")),
    "seed": IntDistribution(0, 2**53),
}
WINS = "val_win_rate"
NUMBERS = (
    "best_step",
    "games",
    "seconds",
    "no_spread",
    "test_win_rate",
    "test_mean_guesses_with_losses",
)
Row: TypeAlias = dict[str, Any]  # an ended trial: number, round, state, wins, parameters, figures


def read_record(folder: Path) -> dict[str, Any]:
    """The content of study.json; empty without the file."""
    path = folder / RECORD
    return read_json(path) if path.exists() else {}


def write_record(plan: StudyPlan, ended: Row | None = None) -> None:
    """Write a study's settings to study.json, and a trial that ended. For one worker at a time.

    The command that started the study stays.
    """
    settings = plan.settings
    before = read_record(settings.place)
    trials: list[Row] = before.get("trials", [])
    if ended is not None:
        if ended["round"] == SEARCH:  # another trial may be the winner now
            trials = [row for row in trials if row["round"] == SEARCH]
        trials = sorted([*trials, ended], key=lambda row: (row["round"] != SEARCH, row["trial"]))
    record = {
        "name": settings.name,
        "question": settings.question,
        "command": before.get("command", sys.argv),
        "identity": plan.identity(),
        "analysis": asdict(settings.analysis),
        "effects": before.get("effects", []),  # written with the page
        "trials": trials,
    }
    if json.loads(json_bytes(record)) != before:  # else another order would change a shipped file
        write_json(settings.place / RECORD, record)


def write_games(plan: StudyPlan) -> None:
    """Write games.csv.xz. Trials whose run folder is not here keep the games that it has."""
    path = plan.settings.place / GAMES
    known = pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else None
    every = plan.settings.analysis.measure.endswith("_over_time")
    parts = []
    for row in read_record(plan.settings.place)["trials"]:
        log = ROOT / row.get("run", "") / "validation_games.jsonl"
        if row["state"] in DONE and log.is_file():
            space = plan.space if row["round"] == SEARCH else CONFIRMED
            about = {
                "round": row["round"],
                "trial": row["trial"],
                "arm": name_arm(row, space),
                "seed": row.get("seed", 0),
            }
            games = pd.DataFrame(
                {**about, "step": game["step"], "secret": game["secret"], "guesses": _spell(game)}
                for game in StepLog(log).records()
            )
            if len(games):
                ends = games.step.isin([0, games.step.max()])
                parts.append(games if every else games[ends])
        elif known is not None:
            mine = (known["round"] == row["round"]) & (known["trial"] == str(row["trial"]))
            parts.append(known[mine])
    if parts and (found := pd.concat(parts)).size:
        text = found.to_csv(index=False, lineterminator="\n")
        write_bytes(path, lzma.compress(text.encode(), preset=9))


def _spell(game: Mapping[str, Any]) -> str:
    """The guesses of a game, - for one that could not be read and ! behind a refused one."""
    told = []
    for guess, kind in zip(game["guesses"], game["kinds"], strict=True):
        if guess is None:
            told.append("-")
        else:
            told.append(guess if kind == "accepted" else f"{guess}!")
    return " ".join(told)
