"""Optuna's samplers and pruners, built from a study's settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from wordle_rl.sweeps.settings import PrunerSettings, SamplerSettings
from wordle_rl.sweeps.space import Choice, Scalar, Space


class SeededByTrial(BaseSampler):
    """A sampler built anew for each trial, from the study's seed and the trial's number.

    This keeps several workers from drawing the same point for different trials. A study with one
    worker draws the same points however often it was interrupted.
    """

    def __init__(self, build: Callable[[int], BaseSampler], seed: int) -> None:
        self._build, self._seed = build, seed
        self._sampler = build(seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler = self._build((self._seed * 1_000_003 + trial.number) % 2**32)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Any,
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)


def build_sampler(settings: SamplerSettings) -> BaseSampler:
    """The sampler. A grid queues its points, so its sampler never draws any."""
    if settings.name == "tpe":
        return SeededByTrial(
            # Constant liar counts running trials as bad ones, so that workers spread out.
            lambda seed: TPESampler(
                seed=seed, n_startup_trials=settings.startup_trials, multivariate=True,
                constant_liar=True,
            ),
            settings.seed,
        )  # fmt: skip
    return SeededByTrial(lambda seed: RandomSampler(seed=seed), settings.seed)


def build_pruner(settings: PrunerSettings, validations: int) -> BasePruner:
    """The pruner. A trial reports `validations` times; its reports are numbered from 1."""
    first = settings.warmup + 1
    common: dict[str, Any] = {
        "n_startup_trials": settings.startup_trials,
        "n_warmup_steps": first,
    }
    built: BasePruner
    match settings.name:
        case "median":
            built = optuna.pruners.MedianPruner(**common)
        case "percentile":
            built = optuna.pruners.PercentilePruner(settings.percentile, **common)
        case "asha":
            built = optuna.pruners.SuccessiveHalvingPruner(min_resource=first)
        case "hyperband":
            built = optuna.pruners.HyperbandPruner(min_resource=first, max_resource=validations)
        case _:
            return optuna.pruners.NopPruner()
    if not settings.patience:
        return built
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return optuna.pruners.PatientPruner(built, patience=settings.patience)


def suggest_params(trial: optuna.Trial, space: Space) -> dict[str, Scalar]:
    """The parameters of a trial, from its sampler or from the queue."""
    params: dict[str, Scalar] = {}
    for name, item in space.items():
        if isinstance(item, Choice):
            params[name] = trial.suggest_categorical(name, item.values)
        elif item.whole:
            low, high, step = int(item.low), int(item.high), int(item.step or 1)
            params[name] = trial.suggest_int(name, low, high, step=step, log=item.log)
        else:
            params[name] = trial.suggest_float(
                name, item.low, item.high, step=item.step, log=item.log
            )
    return params
