"""Studies as they are written: grammar, space, budget, sampler, the shipped files, the command."""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tests.helpers.studies import plan_of
from wordle_rl.runs.config import admit_own
from wordle_rl.runs.instantiate import NAMED, ConfigError
from wordle_rl.runs.paths import CONFIG_DIR, ROOT
from wordle_rl.sweeps.draw import build_sampler
from wordle_rl.sweeps.plan import StudyPlan, plan_study
from wordle_rl.sweeps.record import read_record
from wordle_rl.sweeps.run import run_study
from wordle_rl.sweeps.space import list_grid_points, list_probes, name_arm, parse_params

STUDIES = sorted(p.stem for p in (ROOT / "conf" / "sweep").glob("*.yaml"))
SMOKE = ("gen_count",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("choice(2, 0.5, true)", CategoricalDistribution((2, 0.5, True))),
        ("a, b", CategoricalDistribution(("a", "b"))),
        ("range(1, 4)", IntDistribution(1, 4)),
        ("range(0, 1, step=0.25)", FloatDistribution(0.0, 1.0, step=0.25)),
        ("interval(0.1, 0.3)", FloatDistribution(0.1, 0.3)),
        ("tag(log, int(interval(1, 64)))", IntDistribution(1, 64, log=True)),
    ],
)
def test_the_grammar_of_hydras_optuna_sweeper_is_read(text, expected):
    assert parse_params({"a.b": text}) == ({"a.b": expected}, [])


def test_a_budget_in_games_is_equal_over_arms():
    node = {
        "name": "s",
        "params": {"rollout.num_generations": "choice(2, 8, 16)"},
        "budget": {"games": 3200, "games_per_step": 64, "validations": 5},
    }

    def compose(overrides: Sequence[str]) -> dict[str, Any]:
        pairs = dict(o.split("=") for o in overrides)
        return {"rollout": {"groups": 64, "num_generations": int(pairs["rollout.num_generations"])}}

    study = plan_study(node, [], compose)
    for point in study.points or []:
        pairs = dict(o.split("=") for o in study.build_run(point))
        size, groups = int(pairs["rollout.num_generations"]), int(pairs["rollout.groups"])
        assert groups * size == 64 and groups * size * int(pairs["trainer.steps"]) == 3200
        assert pairs["trainer.validate_every"] == pairs["trainer.checkpoint_every"] == "10"
    # a run with steps of its own, and a study that does not count games, keep the size of a step
    by_steps = plan_study(node, ["trainer.steps=3"], compose)
    by_size = plan_study({**node, "budget": {"games_per_step": 64}}, [], compose)
    for study in (by_steps, by_size):
        [run, *_] = map(study.build_run, study.points or [])
        assert "rollout.groups=32" in run and not any("validate_every" in word for word in run)


def plan(**node: Any) -> StudyPlan:
    return plan_of(Path("/nowhere"), **node)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"sampler": {"_target_": "optuna.samplers.TPESampler"}}, "n_trials must be given"),
        ({"budget": {"games": 0}}, "budget.games must be a whole number 1"),
        ({"budget": {"games": 160, "games_per_step": 7}}, "multiple of rollout.num_generations=2"),
        ({"params": {"output_dir": "a,b"}}, "^output_dir="),
        ({"params": {"x": "interval(0.0, 1.0)"}}, "params: a grid needs lists"),
        ({"analysis": {"measure": "luck"}}, "measure must be one of wins, guesses"),
        ({"name": None, "params": {}}, "or name a study with sweep="),
    ],
)
def test_wrong_settings_are_one_clear_line(node, said):
    with pytest.raises(ValueError, match=said) as error:
        study = plan(**node)
        study.build_run((study.points or [])[0])
    assert "\n" not in str(error.value)


TPE = {"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 3, "multivariate": True}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_sampler_repeats_itself_by_trial_and_differs_by_seed():
    def points(seed: int) -> list[float]:
        study, values = optuna.create_study(), []
        for number in range(6):
            study.sampler = build_sampler({**TPE, "seed": seed}, number)
            trial = study.ask()
            values.append(trial.suggest_float("a", 1e-4, 1e-2, log=True))
            study.tell(trial, values[-1])
        return values

    assert points(0) == points(0) != points(1)
    assert len(set(points(0))) == 6
    for target in ("os.system", "optuna.samplers.os.system", "optuna.samplers.warnings"):
        with pytest.raises(ConfigError, match=r"sampler\._target_ must be optuna\.samplers\."):
            build_sampler({"_target_": target}, 0)


# -- the shipped files, and the command line -------------------------------------------------------


@pytest.mark.parametrize(
    "name", [*SMOKE, *(pytest.param(s, marks=pytest.mark.slow) for s in STUDIES if s not in SMOKE)]
)
def test_every_shipped_study_composes_and_builds(name, study_plan, monkeypatch):
    from wordle_rl.commands.build import build_experiment

    if (ROOT / "sweeps" / name / "parts.py").is_file():  # --config-dir, as its head says
        monkeypatch.setenv(CONFIG_DIR, str(ROOT / "sweeps" / name))
        monkeypatch.setenv(NAMED, "")
        monkeypatch.setattr(sys, "path", [*sys.path])
        admit_own([])
    study: StudyPlan = study_plan(f"sweep={name}")
    if record := read_record(ROOT / "sweeps" / name):
        assert record["identity"] == study.identity(), "so that the shipped study can continue"
        assert record["analysis"] == asdict(study.settings.analysis)
    for arm in (study.settings.arms or {}).values():  # mini for what research/make_starts.py makes
        arm[:] = [
            re.sub(r"=outputs/starts/\w+", "=mini", word)
            for word in arm
            if not word.startswith("init_from=outputs/starts/")
        ]
    study.check(build_experiment)
    if study.settings.sampler is not None:
        return
    budgets = {games_of(study, study.build_run(point)) for point in list_probes(study.space)}
    # Equal are groups (in half of gen_count), games with those replaced (idle_groups), or the time.
    # An arm of batch_rate and lora is the start, and others draw several guesses for a turn of one
    # game.
    exceptions = ("batch_rate", "gen_count", "idle_groups", "lora", "teachers")
    assert budgets == {study.settings.budget.games} or name in exceptions


def games_of(study: StudyPlan, run: Sequence[str]) -> int:
    config = study.compose(run)
    rollout = config["rollout"]
    return rollout["num_generations"] * rollout["groups"] * config["trainer"]["steps"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep=gen_count", "num_generations=3"], "sets num_generations itself"),
        (["sweep=gen_count", "++rollout.num_generations=3"], "sets num_generations itself"),
        (["sweep=clip_range", "algorithm.clip_high=0.9,0.8"], "sets algorithm.clip_high"),
        (
            ["sweep=gen_count", "trainer.steps=3"],
            "arm '2, four times the steps' sets trainer.steps .*budget.games=<fewer> shortens",
        ),
        (["sweep=algorithm", "algorithm=ppo"], "sets algorithm"),  # an arm sets nothing at all
        (["seed=0,1", "seed=5"], "seed is given 2 times"),
        (["algorithm=grpo,rloo", "algorithm=ppo,dapo"], "algorithm is given 2 times"),
    ],
)
def test_an_override_that_could_not_act_in_every_trial_is_refused(arguments, said, study_plan):
    with pytest.raises(ConfigError, match=said) as error:
        study_plan(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("study", "arms", "which"),
    [
        ("teachers", "distillation,GRPO", "teachers"),
        ("starts", "'3','10'", "starts"),
        ("algorithm", "opd,grpo", "teachers"),
    ],
)
def test_a_study_whose_starts_are_missing_says_at_once_what_makes_them(
    study, arms, which, study_plan, monkeypatch, tmp_path
):
    monkeypatch.setattr("wordle_rl.sweeps.plan.ROOT", tmp_path)  # where no starts are
    plan = study_plan(f"sweep={study}", f"arm={arms}")
    with pytest.raises(ConfigError, match=rf"outputs/starts/.*/make_starts\.py {which}$"):
        run_study(plan, lambda _: pytest.fail("an arm was built"))


def test_an_override_acts_in_every_trial_however_it_is_written(study_plan):
    for prefix in ("", "++"):
        study = study_plan("sweep=clip_range", f"{prefix}trainer.steps=3", f"{prefix}seed=5")
        assert len(study.points) == 3 * len(study.settings.arms)
        for point in study.points[::4]:
            config = study.compose(study.build_run(point))
            assert (config["trainer"]["steps"], config["seed"]) == (3, 5)
        sweep = study_plan("sweep=gen_count", f"{prefix}seed=7,8")
        assert {point["seed"] for point in sweep.points} == {7, 8}
        assert {*sweep.space} == {"arm", "seed"}


def test_values_that_differ_in_the_fifth_digit_are_arms_of_their_own():
    values = [0.00012341, 0.00012344, 1e-5, 1000.0]
    space, _ = parse_params({"optim.lr": ", ".join(map(str, values)), "seed": "0, 1"})
    names = [name_arm(point, space) for point in list_grid_points(space)]
    assert len(set(names)) == 4 and set(map(names.count, names)) == {2}
    assert [float(name.partition("=")[2]) for name in names[:4]] == values


def test_several_values_alone_are_a_study_that_the_same_arguments_continue(study_plan):
    study = study_plan("optim.lr=1e-4,2e-4", "seed=0,1", "model=tiny")
    assert [*study.space] == ["optim.lr", "seed"] and study.overrides == ["model=tiny"]
    assert study.settings.question == "Does lr=0.0002 do better than lr=0.0001?"
    assert study.settings.default == {"optim.lr": 0.0001}
    assert re.fullmatch(r"optim\.lr-seed-[0-9a-f]{8}", study.settings.name)
    assert study.settings.place == ROOT / "outputs" / "sweeps" / study.settings.name
    assert [" ".join(study.build_run(point)[-2:]) for point in study.points] == [
        f"seed={seed} optim.lr={lr}" for seed in (0, 1) for lr in (0.0001, 0.0002)
    ]
    repeat = study_plan("seed=0,1", "model=tiny", "optim.lr=1e-4,2e-4")
    other = study_plan("seed=0,1", "optim.lr=1e-4,2e-4")
    assert repeat.settings.name == study.settings.name != other.settings.name
    alias = study_plan("optim.lr=1e-4,2e-4", "hydra.sweeper.name=mine")
    assert alias.settings.place == ROOT / "outputs" / "sweeps" / "mine"
