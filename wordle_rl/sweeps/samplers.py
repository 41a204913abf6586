"""Optuna's samplers and pruners, as a study's settings ask for them."""

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
    """A sampler made anew for each trial, from the study's seed and the trial's number.

    So several workers never draw the same point for different trials, and a study of one worker
    repeats itself, however often it was interrupted.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make, self._seed = make, seed
        self._sampler = make(seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler = self._make((self._seed * 1_000_003 + trial.number) % 2**32)
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


def sampler(settings: SamplerSettings) -> BaseSampler:
    """The sampler; a grid's points are queued, so it never draws any."""
    if settings.name == "tpe":
        return SeededByTrial(
            # constant liar: the trials that still run count as bad, so that workers spread out
            lambda seed: TPESampler(
                seed=seed, n_startup_trials=settings.startup_trials, multivariate=True,
                constant_liar=True,
            ),
            settings.seed,
        )  # fmt: skip
    return SeededByTrial(lambda seed: RandomSampler(seed=seed), settings.seed)


def pruner(settings: PrunerSettings, validations: int) -> BasePruner:
    """The pruner. Reports are counted 1, 2, ... validations."""
    first = settings.warmup + 1
    common: dict[str, Any] = {
        "n_startup_trials": settings.startup_trials,
        "n_warmup_steps": first,
    }
    made: BasePruner
    match settings.name:
        case "median":
            made = optuna.pruners.MedianPruner(**common)
        case "percentile":
            made = optuna.pruners.PercentilePruner(settings.percentile, **common)
        case "asha":
            made = optuna.pruners.SuccessiveHalvingPruner(min_resource=first)
        case "hyperband":
            made = optuna.pruners.HyperbandPruner(min_resource=first, max_resource=validations)
        case _:
            return optuna.pruners.NopPruner()
    if not settings.patience:
        return made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return optuna.pruners.PatientPruner(made, patience=settings.patience)


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Scalar]:
    """The parameters of a trial."""
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
