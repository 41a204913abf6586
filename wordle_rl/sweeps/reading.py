"""Reads a study from the files that it keeps."""

from __future__ import annotations

from pathlib import Path

import optuna

from wordle_rl.runs.paths import TRAIN
from wordle_rl.sweeps.games import read_games
from wordle_rl.sweeps.importance import estimate_importance
from wordle_rl.sweeps.records import SEARCH, read_record, read_trials
from wordle_rl.sweeps.results import ReportError, Study
from wordle_rl.sweeps.rounds import find_winner
from wordle_rl.sweeps.table import read_space, read_table


def read_study(folder: Path) -> Study:
    """The study in a folder. Raises ReportError, and FolderError for a damaged file."""
    if (record := read_record(folder)) is None:
        raise ReportError(f"{folder}: has no study.json, which {TRAIN} -m sweep=... writes")
    space = read_space(record["identity"])
    try:
        results = read_table(folder, space)
    except FileNotFoundError:
        raise ReportError(f"{folder}: has no results.csv, so the study did not run yet") from None
    trials = [*read_trials(folder, SEARCH, space).values()]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = optuna.create_study(direction="maximize")
    search.add_trials(trials)
    return Study(
        name=record["name"], question=record["question"], command=record["command"],
        identity=record["identity"], analysis=record.get("analysis", {}), results=tuple(results),
        games=read_games(folder), best=find_winner(trials), importance=estimate_importance(search),
    )  # fmt: skip
