"""What the doctor says of runs whose cause is known: kept ones, and curves with a planted one."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from wordle_rl.evaluation.doctor import Curves, diagnose, is_healthy

# Metrics of runs of the study batch_rate (micro, 1e-4 is a rate that learns), and of free GRPO with
# SmolLM2 (experiment=reinforce), whose steps hold far fewer guesses than its noise scale.
with lzma.open(Path(__file__).with_name("doctor_runs.jsonl.xz"), "rt") as file:
    RUNS = {run["name"]: run for run in map(json.loads, file)}
STEPS = 30


def causes(curves, settings=None):
    return [finding.cause for finding in diagnose(curves, settings or {})]


def curves(**changes):
    """Thirty steps in which nothing moves, but for what is given: a constant or a start and end."""
    random = np.random.default_rng(0)
    defaults = {
        "reward/mean": 1.0,
        "train/win_rate": 0.3,
        "train/format": 1.0,
        "policy/surprise": (1.0, 0.9),
        "groups/zero_spread": 0.1,
    }
    metrics = {**defaults, **{name.replace("__", "/"): value for name, value in changes.items()}}
    columns = {}
    for name, value in metrics.items():
        start, end = value if isinstance(value, tuple) else (value, value)
        noise = random.normal(0, 0.01, STEPS) * (0.0 if start == end else abs(start) + abs(end))
        columns[name] = np.linspace(start, end, STEPS) + noise
    return Curves({"step": n + 1, **{k: v[n] for k, v in columns.items()}} for n in range(STEPS))


@pytest.mark.parametrize("name", ["learns_10_steps", "learns_40_steps", "learns_160_steps"])
def test_runs_that_learn_are_healthy_and_nothing_is_found(name):
    run = Curves(RUNS[name]["rows"])
    assert is_healthy(run) and causes(run, RUNS[name]["settings"]) == []


def test_a_run_that_learns_more_than_its_reward_shows_is_no_alarm():
    # experiment=quick: greedy play gains 13.7 points, and the drawn reward hardly rises.
    assert causes(Curves(RUNS["demo_quick"]["rows"]), RUNS["demo_quick"]["settings"]) == []


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("rate_100_times", "the rate is too high"),
        ("rate_10_times", "the rate is too high"),
        ("small_steps_rate_10_times", "a step is smaller than its noise"),
        ("a_tenth_of_the_rate", "the rate is too low"),
        ("smollm2_seed_0", "a step is smaller than its noise"),
    ],
)
def test_the_cause_of_kept_runs_is_found_and_they_are_not_called_healthy(name, cause):
    run = Curves(RUNS[name]["rows"])
    assert cause in causes(run, RUNS[name]["settings"])
    assert not is_healthy(run)


@pytest.mark.parametrize(
    ("planted", "settings", "cause"),
    [
        ({"train__most_common_later_guess": (0.05, 0.6)}, {}, "a favourite word"),
        (
            {"reward__mean": (1.0, 2.0), "train__win_rate": (0.5, 0.1)},
            {},
            "reward rises while wins fall",
        ),
        ({"policy__sampler_gap": 0.1}, {}, "sampler and trainer differ"),
        ({"train__format": 0.2}, {}, "answers cannot be read"),
        ({"train__non_words": 0.9}, {}, "guesses are no words"),
        (
            {"train__format": 0.2, "tokens__per_answer": 15.9},
            {"model.max_tokens": 16},
            "answers are cut",
        ),
        ({"tokens__cut": 0.5}, {}, "answers are cut"),
        ({"groups__zero_spread": 0.95}, {}, "groups without spread"),
        ({"train__win_rate": 0.0}, {}, "a start that never wins"),
        ({"policy__surprise": (1.0, 0.3)}, {}, "the rate is too high"),
        ({"policy__clipped": 0.5}, {}, "the rate is too high"),
        ({"policy__surprise": 1.0}, {"optim.lr": 1e-7}, "the rate is too low"),
        ({"policy__surprise": 1.0}, {"algorithm.beta": 1.0}, "KL holds the policy"),
        (
            {"update__agreement": (0.01, 0.02), "update__guesses": 100},
            {},
            "a step is smaller than its noise",
        ),
        (
            {
                "train__win_rate": (0.3, 0.9),
                "reward__mean": (1.0, 2.0),
                "val__win_rate": (0.6, 0.2),
                "val__win_rate_low": (0.55, 0.15),
                "val__win_rate_high": (0.65, 0.25),
            },
            {},
            "training secrets learnt by heart",
        ),
    ],
)
def test_a_planted_cause_is_found_and_is_no_alarm_of_the_same_run_without_it(
    planted, settings, cause
):
    assert cause in causes(curves(**planted), settings)
    assert cause not in causes(curves(reward__mean=(1.0, 2.0), train__win_rate=(0.3, 0.5)))


def test_a_run_that_learns_has_no_alarm_for_what_only_explains_a_failure():
    signals = {"reward__mean": (1.0, 2.0), "train__win_rate": (0.3, 0.5)}
    assert causes(curves(**signals, groups__zero_spread=0.9, policy__surprise=(1.0, 0.3))) == []


def test_the_interval_of_validation_decides_whether_wins_fell():
    def run_to(end):
        ends = {"val__win_rate": end, "val__win_rate_low": end - 0.05, "val__win_rate_high": end}
        row = {name.replace("__", "/"): value for name, value in ends.items()}
        start = {"val/win_rate": 0.3, "val/win_rate_low": 0.25, "val/win_rate_high": 0.35}
        rises = [{"step": n, "reward/mean": float(n)} for n in range(1, STEPS)]
        return Curves([{"step": 0, **start}, *rises, {"step": STEPS, "reward/mean": 30.0, **row}])

    assert is_healthy(run_to(0.29)) and causes(run_to(0.29)) == []
    assert causes(run_to(0.1)) == ["reward rises while wins fall"]


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_few_steps_tell_nothing(steps):
    rows = [{"step": n, "reward/mean": float(n)} for n in range(steps + 1)]
    assert causes(Curves(rows)) == ["too few steps"]


def test_a_log_without_the_metrics_of_a_rule_is_no_alarm():
    rows = [{"step": n + 1, "loss": 1.0} for n in range(STEPS)]
    assert causes(Curves(rows)) == []


def test_the_strongest_comes_first():
    findings = diagnose(curves(train__non_words=0.95, policy__surprise=(1.0, 0.1)), {})
    strengths = [finding.strength for finding in findings]
    assert len(findings) > 1 and strengths == sorted(strengths, reverse=True)
