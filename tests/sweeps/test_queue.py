"""Which trial a worker takes next, and what Optuna says of trials that it is told from files."""

from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.helpers.studies import plan_of
from wordle_rl.sweeps.record import Round, open_search
from wordle_rl.sweeps.trial import Trial

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

REPORTS = 4
X = {"params": {"x": "interval(0.0, 1.0)"}, "budget": {"validations": REPORTS}}
QMC = {"_target_": "optuna.samplers.QMCSampler", "seed": 0}


def take(part: Round) -> Trial:
    trial, running = part.take()
    assert trial is not None and running
    return trial


def test_a_trial_is_one_workers_until_its_lock_is_free_and_then_the_next_ones(tmp_path):
    plan = plan_of(tmp_path, params={"x": "choice(1, 2)"})
    first, second = take(open_search(plan)), take(open_search(plan))
    assert [trial.params for trial in (first, second)] == [{"x": 1}, {"x": 2}]
    assert open_search(plan).take() == (None, True)
    first.lock.close()
    retry = take(open_search(plan))
    assert (retry.number, retry.params) == (first.number, first.params)
    for trial in (retry, second):
        end(open_search(plan), trial, state="complete", wins=[0.5])
    assert open_search(plan).take() == (None, False)


def test_a_failed_point_is_tried_again_by_the_next_command_alone(tmp_path):
    plan = plan_of(tmp_path, params={"x": "choice(1, 2)"})
    part = open_search(plan)
    end(part, take(part), state="failed", wins=[])
    other = take(part)
    assert other.params == {"x": 2} and part.take() == (None, True)
    retry = take(open_search(plan))
    assert (retry.number, retry.params) == (2, {"x": 1})
    for trial in (other, retry):
        trial.lock.close()


def end(part: Round, trial: Trial, *, state: str, wins: list[float]) -> None:
    """Note the end of a trial with these validation wins."""
    curve = [[10.0 * step, value] for step, value in enumerate(wins, 1)]
    win_rate = wins[-1] if state == "complete" else None
    part.end(trial, {"state": state, "val_win_rate": win_rate, "curve": curve})


def work(root: Path, **node: Any) -> dict[float, bool]:
    """Whether each x was pruned, of a study whose trials improve by x at each validation."""
    by_x = {}
    plan = plan_of(root, **X, n_trials=9, **node)
    while (trial := open_search(plan).take()[0]) is not None:
        x: Any = trial.params["x"]
        wins = [x * step for step in range(1, REPORTS + 1)]
        by_x[x] = any(trial.is_poor(wins[:step]) for step in range(1, REPORTS))
        state = "pruned" if by_x[x] else "complete"
        end(open_search(plan), trial, state=state, wins=wins)
    return by_x


def test_a_sampler_that_follows_a_sequence_follows_it_over_the_trials_of_a_study(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.QMCSampler(seed=0))
    expected = []
    for _ in range(9):
        trial = study.ask({"x": optuna.distributions.FloatDistribution(0.0, 1.0)})
        expected.append(trial.params["x"])
        study.tell(trial, 0.0)
    assert [*work(tmp_path, sampler=QMC)][1:] == expected[1:]  # the first is by chance


@pytest.mark.parametrize("name", ["SuccessiveHalvingPruner", "HyperbandPruner", "MedianPruner"])
def test_a_pruner_stops_the_trials_that_it_stops_in_a_study_of_optuna(tmp_path, name):
    options = {
        "HyperbandPruner": {"max_resource": REPORTS},
        "MedianPruner": {"n_startup_trials": 2},
    }
    settings = options.get(name, {})
    by_x = work(tmp_path, sampler=QMC, pruner={"_target_": f"optuna.pruners.{name}", **settings})
    pruner = getattr(optuna.pruners, name)(**settings)
    study = optuna.create_study(study_name="study", direction="maximize", pruner=pruner)
    expected = {}
    for x in by_x:
        study.enqueue_trial({"x": x})
        trial = study.ask({"x": optuna.distributions.FloatDistribution(0.0, 1.0)})
        expected[x] = False
        for step in range(1, REPORTS + 1):
            trial.report(x * step, step)
            if step < REPORTS and trial.should_prune():
                expected[x] = True
                break
        state = optuna.trial.TrialState.PRUNED if expected[x] else None
        study.tell(trial, None if expected[x] else x * REPORTS, state=state)
    assert by_x == expected and {*by_x.values()} == {True, False}
