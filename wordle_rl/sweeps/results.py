"""A study's trials as plain records: what the notebook reads from Optuna's storage."""

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
from wordle_rl.sweeps.records import About
from wordle_rl.sweeps.rounds import CONFIRM, winner
from wordle_rl.sweeps.space import Params
from wordle_rl.sweeps.storage import open_storage

_ENOUGH = 4  # complete trials before importance says anything


class NotebookError(ValueError):
    """A study cannot be collected; the message is one line that names what is missing."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One trial."""

    number: int
    confirms: bool  # with fresh seeds, on the test secrets
    state: str  # complete, pruned, failed, running or waiting
    params: Params
    value: float | None  # validation wins of its best checkpoint, 0..1
    figures: Mapping[str, Any]  # see wordle_rl.sweeps.objective.figures; empty while it runs

    @property
    def arm(self) -> dict[str, Any]:
        """Its parameters but for the seed."""
        return {name: value for name, value in self.params.items() if name != "seed"}


@dataclass(frozen=True, kw_only=True)
class Study:
    """All that a notebook shows."""

    name: str
    question: str
    command: Sequence[str]  # that began it
    identity: Mapping[str, Any]
    results: tuple[Result, ...]
    best: Params | None
    importance: Mapping[str, float]  # share of the objective's spread, by parameter; may be empty


def read_study(folder: Path, url: str | None = None) -> Study:
    """The study of a notebook folder.

    url: its storage; None for that of study.json, see _address. Raises NotebookError, and
    RunFolderError for a damaged study.json.
    """
    try:
        about = About.read(folder)
    except FileNotFoundError:
        raise NotebookError(f"{folder}: no study.json here; python train.py -m makes it") from None
    url = url or _address(about)
    if url is None and not (folder / "study.db").is_file():
        raise NotebookError(
            f"{folder / 'study.db'} is missing: the study ran elsewhere, and only its results are "
            "here; python train.py -m runs it again"
        )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = url or f"sqlite:///{(folder / 'study.db').resolve()}"
    try:
        storage = open_storage(url, heartbeat=60, grace=180)
    except ValueError as error:
        if HIDDEN not in (about.storage or ""):
            raise
        raise NotebookError(
            f"{error}; {folder / 'study.json'} leaves the password out: give the address with "
            f"--storage, or in the environment variable {STORAGE}"
        ) from None
    try:
        study = optuna.load_study(study_name=about.name, storage=storage)
    except KeyError:
        raise NotebookError(f"{folder}: there is no study {about.name} in its storage") from None
    names = {summary.study_name for summary in optuna.get_all_study_summaries(storage)}
    results = _results(study, confirms=False)
    if about.name + CONFIRM in names:
        confirm = optuna.load_study(study_name=about.name + CONFIRM, storage=storage)
        results += _results(confirm, confirms=True)
    return Study(
        name=about.name, question=about.question, command=shown_command(about.command),
        identity=about.identity, results=tuple(results),
        best=winner(study.get_trials(deepcopy=False)), importance=_importance(study),
    )  # fmt: skip


def _address(about: About) -> str | None:
    """The storage of study.json, with the password of the environment's if that is the same."""
    if about.storage is None or HIDDEN not in about.storage:
        return about.storage
    given = os.environ.get(STORAGE, "")
    return given if shown_address(given) == about.storage else without_hidden(about.storage)


def _results(study: optuna.Study, *, confirms: bool) -> list[Result]:
    """Trials that count, each attempt that was gone on with left out."""
    names = {TrialState.FAIL: "failed"}
    return [
        Result(
            number=trial.number, confirms=confirms,
            state=names.get(trial.state, trial.state.name.lower()),
            params=trial.system_attrs.get("fixed_params", trial.params), figures=trial.user_attrs,
            value=trial.value if trial.state == TrialState.COMPLETE else None,
        )
        for trial in study.get_trials(deepcopy=False)
        if trial.state != TrialState.FAIL or "cause" in trial.user_attrs
    ]  # fmt: skip


def _importance(study: optuna.Study) -> Mapping[str, float]:
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    values = {trial.value for trial in complete}
    names: Sequence[str] = sorted(complete[0].params) if complete else ()
    if len(complete) < _ENOUGH or len(values) < 2 or len(names) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # needs no other library, unlike Optuna's default
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
