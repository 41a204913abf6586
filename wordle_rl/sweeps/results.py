"""A study's trials as plain records, read from Optuna's storage for the report."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from wordle_rl.runs.addresses import HIDDEN, STORAGE, shown_address, shown_command, without_hidden
from wordle_rl.runs.paths import TRAIN
from wordle_rl.sweeps.records import StudyRecord
from wordle_rl.sweeps.rounds import CONFIRM, find_winner, read_point
from wordle_rl.sweeps.space import Params
from wordle_rl.sweeps.storage import open_storage

_ENOUGH = 4  # complete trials from which importance can be estimated


class ReportError(ValueError):
    """A study cannot be read; the message is one line that names what is missing."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One trial."""

    number: int
    confirms: bool  # whether it belongs to the confirmation with fresh seeds
    state: str  # complete, pruned, failed, running or waiting
    params: Params
    value: float | None  # validation wins of its best checkpoint, 0..1
    figures: Mapping[str, Any]  # from objective.collect_figures; empty while it runs

    @property
    def arm(self) -> dict[str, Any]:
        """Its parameters without the seed."""
        return {name: value for name, value in self.params.items() if name != "seed"}


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that the report shows."""

    name: str
    question: str
    command: Sequence[str]  # that started it
    identity: Mapping[str, Any]
    results: tuple[Result, ...]
    best: Params | None
    importance: Mapping[str, float]  # of each parameter, as shares; may be empty


def read_study(folder: Path, url: str | None = None) -> Study:
    """The study whose report is in a folder.

    url: its storage; None takes the one in study.json. Raises ReportError, and FolderError for a
    damaged study.json.
    """
    try:
        record = StudyRecord.read(folder)
    except FileNotFoundError:
        raise ReportError(
            f"{folder}: has no study.json, which {TRAIN} -m sweep=... writes"
        ) from None
    url = url or _find_address(record)
    if url is None and not (folder / "study.db").is_file():
        command = " ".join(shown_command(record.command[1:]))
        raise ReportError(
            f"{folder / 'study.db'} is missing: the study ran elsewhere, and only its results are "
            f"here; get the file from there, give the database with --storage, or run the study "
            f"here: {TRAIN} {command}"
        )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
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
    results = read_results(study, confirms=False)
    if record.name + CONFIRM in names:
        confirm = optuna.load_study(study_name=record.name + CONFIRM, storage=storage)
        results += read_results(confirm, confirms=True)
    return Study(
        name=record.name, question=record.question, command=shown_command(record.command),
        identity=record.identity, results=tuple(results),
        best=find_winner(study.get_trials(deepcopy=False)), importance=_estimate_importance(study),
    )  # fmt: skip


def _find_address(record: StudyRecord) -> str | None:
    """The storage in study.json, with its password if the environment has the same address."""
    if record.storage is None or HIDDEN not in record.storage:
        return record.storage
    given = os.environ.get(STORAGE, "")
    return given if shown_address(given) == record.storage else without_hidden(record.storage)


def read_results(study: optuna.Study, *, confirms: bool) -> list[Result]:
    """All trials except the ones that were stopped or lost their worker, and ran again."""
    names = {TrialState.FAIL: "failed"}
    return [
        Result(
            number=trial.number, confirms=confirms,
            state=names.get(trial.state, trial.state.name.lower()),
            params=read_point(trial), figures=trial.user_attrs,
            value=trial.value if trial.state == TrialState.COMPLETE else None,
        )
        for trial in study.get_trials(deepcopy=False)
        if trial.state != TrialState.FAIL or "cause" in trial.user_attrs
    ]  # fmt: skip


def _estimate_importance(study: optuna.Study) -> Mapping[str, float]:
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    values = {trial.value for trial in complete}
    names: Sequence[str] = sorted(complete[0].params) if complete else ()
    if len(complete) < _ENOUGH or len(values) < 2 or len(names) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # Unlike Optuna's default, this evaluator needs no other library.
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
