"""How much each parameter of a study sets the better trials apart, and how sure that is."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from wordle_rl.sweeps.results import Share

_ENOUGH = 4  # trials from which importance can be estimated
_SAMPLES = 100  # of the trials, drawn with replacement
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


def estimate_importance(study: optuna.Study) -> Mapping[str, Share]:
    """Each parameter's share of the importance (PED-ANOVA), empty with too few trials.

    Its 90 % interval comes from samples of the trials, drawn with replacement. Where trials were
    pruned, every trial is judged by its first validation: the few that ran to their end are alike.
    """
    trials = study.get_trials(deepcopy=False, states=_FINISHED)
    pruned = any(trial.state is TrialState.PRUNED for trial in trials)
    values = [_first_report(trial) if pruned else trial.value for trial in trials]
    judged = [(t, value) for t, value in zip(trials, values, strict=True) if value is not None]
    shares = _evaluate(judged)
    if not shares:
        return {}
    rng = random.Random(0)
    drawn = [_evaluate(rng.choices(judged, k=len(judged))) for _ in range(_SAMPLES)]
    found = {}
    # Optuna leaves the order of equal shares to chance.
    for name, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
        spread = [sample[name] for sample in drawn if sample]
        low, high = np.quantile(spread, (0.05, 0.95)) if spread else (share, share)
        found[name] = Share(value=share, low=float(low), high=float(high))
    return found


def _first_report(trial: FrozenTrial) -> float | None:
    reports = trial.intermediate_values
    return reports[min(reports)] if reports else None


def _evaluate(judged: Sequence[tuple[FrozenTrial, float]]) -> Mapping[str, float]:
    values = {value for _, value in judged}
    names = set(judged[0][0].params) if judged else set()
    if len(judged) < _ENOUGH or len(values) < 2 or len(names) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [create_trial(value=value, params=t.params, distributions=t.distributions)
         for t, value in judged]
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # Unlike Optuna's default, this evaluator needs no other library.
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
