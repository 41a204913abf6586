"""Reads a study from its database, or from the files that it leaves when that is gone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import optuna

from wordle_rl.runs.addresses import HIDDEN, STORAGE, shown_address, shown_command, without_hidden
from wordle_rl.runs.paths import TRAIN
from wordle_rl.sweeps.games import collect_games, read_games
from wordle_rl.sweeps.importance import estimate_importance
from wordle_rl.sweeps.measures import find_measure
from wordle_rl.sweeps.records import StudyRecord
from wordle_rl.sweeps.results import ReportError, Result, Study, read_results
from wordle_rl.sweeps.rounds import CONFIRM, find_winner
from wordle_rl.sweeps.space import Space
from wordle_rl.sweeps.storage import open_storage
from wordle_rl.sweeps.table import read_space, read_table, restore_trials


def read_study(folder: Path, url: str | None = None, *, files_only: bool = False) -> Study:
    """The study whose report is in a folder.

    url: its storage; None takes the one in study.json. Without a database, and with files_only,
    the trials come from results.csv and the games from games.csv.xz alone. Raises ReportError, and
    FolderError for a damaged file.
    """
    try:
        record = StudyRecord.read(folder)
    except FileNotFoundError:
        raise ReportError(
            f"{folder}: has no study.json, which {TRAIN} -m sweep=... writes"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = url or _find_address(record)
    if files_only or (url is None and not (folder / "study.db").is_file()):
        try:
            space = read_space(record.identity)
            results = read_table(folder, space)
        except FileNotFoundError:
            raise ReportError(_say_missing(folder, record)) from None
        search = rebuild_study(results, space)
    else:
        search, confirm = _load_studies(folder, record, url)
        results = read_results(search, confirms=False)
        results += read_results(confirm, confirms=True) if confirm else []
    games = read_games(folder)
    if not files_only:
        every = find_measure(record.analysis).over_time
        games = collect_games(results, games, every=every)
    return Study(
        name=record.name, question=record.question, command=shown_command(record.command),
        identity=record.identity, analysis=record.analysis, results=tuple(results),
        games=games,
        best=find_winner(search.get_trials(deepcopy=False)),
        importance=estimate_importance(search),
    )  # fmt: skip


def rebuild_study(results: Sequence[Result], space: Space) -> optuna.Study:
    """An Optuna study in memory with the trials of a search."""
    study = optuna.create_study(direction="maximize")
    restore_trials(study, [r for r in results if not r.confirms], space)
    return study


def _say_missing(folder: Path, record: StudyRecord) -> str:
    command = " ".join(shown_command(record.command[1:]))
    return (
        f"{folder}: has neither study.db nor results.csv: the study ran elsewhere; get a file from "
        f"there, give the database with --storage, or run the study here: {TRAIN} {command}"
    )


def _load_studies(
    folder: Path, record: StudyRecord, url: str | None
) -> tuple[optuna.Study, optuna.Study | None]:
    """The search and the confirmation in a study's storage. Raises ReportError."""
    url = url or f"sqlite:///{(folder / 'study.db').resolve()}"
    try:
        storage = open_storage(url, heartbeat=60, grace=180)
    except ValueError as error:
        if HIDDEN not in (record.storage or ""):
            raise
        raise ReportError(
            f"{error}; {folder / 'study.json'} leaves the password out: give the address with "
            f"--storage, or in the environment variable {STORAGE}"
        ) from None
    try:
        study = optuna.load_study(study_name=record.name, storage=storage)
    except KeyError:
        raise ReportError(f"{folder}: there is no study {record.name} in its storage") from None
    names = {summary.study_name for summary in optuna.get_all_study_summaries(storage)}
    confirm = None
    if record.name + CONFIRM in names:
        confirm = optuna.load_study(study_name=record.name + CONFIRM, storage=storage)
    return study, confirm


def _find_address(record: StudyRecord) -> str | None:
    """The storage in study.json, with its password if the environment has the same address."""
    if record.storage is None or HIDDEN not in record.storage:
        return record.storage
    given = os.environ.get(STORAGE, "")
    return given if shown_address(given) == record.storage else without_hidden(record.storage)
