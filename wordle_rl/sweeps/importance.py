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

_ENOUGH = 4  # complete trials from which importance can be estimated
_SAMPLES = 100  # of the trials, drawn with replacement


def estimate_importance(study: optuna.Study) -> Mapping[str, Share]:
    """Each parameter's share of the importance (PED-ANOVA), empty with too few trials.

    Its 90 % interval comes from samples of the trials, drawn with replacement.
    """
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    shares = _evaluate(trials)
    if not shares:
        return {}
    rng = random.Random(0)
    drawn = [_evaluate(rng.choices(trials, k=len(trials))) for _ in range(_SAMPLES)]
    found = {}
    # Optuna leaves the order of equal shares to chance.
    for name, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
        spread = [sample[name] for sample in drawn if sample]
        low, high = np.quantile(spread, (0.05, 0.95)) if spread else (share, share)
        found[name] = Share(value=share, low=float(low), high=float(high))
    return found


def _evaluate(trials: Sequence[FrozenTrial]) -> Mapping[str, float]:
    values = {trial.value for trial in trials}
    names = set(trials[0].params) if trials else set()
    if len(trials) < _ENOUGH or len(values) < 2 or len(names) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [create_trial(value=t.value, params=t.params, distributions=t.distributions)
         for t in trials]
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # Unlike Optuna's default, this evaluator needs no other library.
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
