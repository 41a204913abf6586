"""Optuna draws the points of a study that has a sampler, and stops the poor trials of a pruner.

Optuna keeps nothing: for each question it is told all trials of the study, in their order. What it
wants to remember of a trial are the `notes` of its row.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.space import count_points, list_grid_points
from wordle_rl.sweeps.trial import FAILED, WINS, Row, list_reports

_DRAWS = 8  # more than there are trials, of a sampler that draws points with a trial


def build_sampler(node: Mapping[str, Any], number: int, draw: int = 0) -> Any:
    """The sampler of one draw, seeded by the study's seed, the trial's number and the draw's.

    So no two workers draw the same point, and an interrupted study draws the same points.
    """
    seed = (int(node.get("seed") or 0) * 1_000_003 + number + draw * 999_983) % 2**32
    return _build_part("hydra.sweeper.sampler", node, optuna.samplers, seed=seed)


def build_pruner(node: Mapping[str, Any] | None) -> Any:
    """The pruner of a study; one that stops no trial for none."""
    if node is None:
        return optuna.pruners.NopPruner()
    return _build_part("hydra.sweeper.pruner", node, optuna.pruners)


def _build_part(key: str, node: Mapping[str, Any], module: ModuleType, **extras: Any) -> Any:
    """The object of a node, whose `_target_` is a class of the module; extras: if it knows them."""
    where, _, name = str(node.get("_target_")).rpartition(".")
    if where != module.__name__ or name not in module.__all__:
        names = ", ".join(n for n in module.__all__ if n[0].isupper())
        raise ConfigError(f"{key}._target_ must be {module.__name__}.<class>, out of {names}")
    settings = {
        k: _build_part(f"{key}.{k}", v, module) if isinstance(v, Mapping) and "_target_" in v else v
        for k, v in node.items()
        if k != "_target_"
    }
    cls = getattr(module, name)
    parameters = inspect.signature(cls).parameters
    try:
        return cls(**settings | {k: v for k, v in extras.items() if k in parameters})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}") from None


def draw_point(plan: StudyPlan, rows: Sequence[Row], number: int) -> Row | None:
    """The point of trial `number`, with Optuna's notes; None if all points have a trial.

    Where the sampler draws points with a trial again and again, the first point without one.
    """
    study = _open_study(plan, rows, number)
    known = [plan.pick(row) for row in rows if row["state"] != FAILED]
    for draw in range(number + _DRAWS):  # a sampler that follows a sequence begins it again
        study.sampler = build_sampler(plan.settings.sampler or {}, number, draw)
        params = study.ask(dict(plan.space)).params
        if params not in known:
            notes = study.trials[-1].system_attrs
            return {**params, "notes": notes} if notes else params
    points = [] if count_points(plan.space) is None else list_grid_points(plan.space)
    return next((point for point in points if point not in known), None)


def is_poor(
    plan: StudyPlan, rows: Sequence[Row], number: int, wins: Sequence[float]
) -> tuple[bool, dict[str, Any]]:
    """Whether trial `number` should stop after these validations, and Optuna's notes."""
    study = _open_study(plan, rows, number)
    study.enqueue_trial(next(plan.pick(row) for row in rows if row["trial"] == number))
    trial, poor = study.ask(dict(plan.space)), False
    study.add_trials(_recall(plan, rows, range(number + 1, max(r["trial"] for r in rows) + 1)))
    for step, value in enumerate(wins, 1):
        trial.report(value, step)
        poor = trial.should_prune()
    return poor, study.trials[number].system_attrs


def _open_study(plan: StudyPlan, rows: Sequence[Row], number: int) -> optuna.Study:
    """A study of Optuna in memory, whose next trial has this number."""
    study = optuna.create_study(
        study_name=plan.settings.name,
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(),
        pruner=build_pruner(plan.settings.pruner),
    )
    study.add_trials(_recall(plan, rows, range(number)))
    return study


def _recall(plan: StudyPlan, rows: Sequence[Row], numbers: Iterable[int]) -> list[FrozenTrial]:
    """Trials as Optuna knows them. A number that nothing came of is a failed one."""
    by_number = {row["trial"]: row for row in rows if row["state"] != FAILED}
    return [
        create_trial(
            state=TrialState[row["state"].upper()],
            value=row[WINS],
            params=plan.pick(row),
            distributions=dict(plan.space),
            system_attrs=row.get("notes"),
            intermediate_values=dict(enumerate(list_reports(row), 1)),
        )
        if row
        else create_trial(state=TrialState.FAIL)
        for row in map(by_number.get, numbers)
    ]
