"""Studies as they are written: grammar, space, plan, budget, the winner, the shipped files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from omegaconf import OmegaConf
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from tests.helpers.studies import plan_of, work
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.ledger import build_pruner, build_sampler, open_storage
from wordle_rl.sweeps.plan import StudyPlan, insert_start
from wordle_rl.sweeps.progress import format_arms
from wordle_rl.sweeps.records import read_record
from wordle_rl.sweeps.rounds import build_confirmation, find_winner
from wordle_rl.sweeps.settings import build_study_settings, describe_ad_hoc
from wordle_rl.sweeps.space import (
    format_distribution,
    format_overrides,
    format_params,
    list_grid_points,
    list_probes,
    parse_overrides,
    parse_params,
)

STUDIES = sorted(p.stem for p in (ROOT / "conf" / "sweep").glob("*.yaml"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("choice(2, 4)", CategoricalDistribution((2, 4))),
        ("a, b", CategoricalDistribution(("a", "b"))),
        ("choice(2, 0.5, true)", CategoricalDistribution((2, 0.5, True))),
        ("choice('a b', c)", CategoricalDistribution(("a b", "c"))),
        ("choice([1,2], {a:3})", CategoricalDistribution(("[1,2]", "{a:3}"))),
        ("range(1, 4)", IntDistribution(1, 4)),
        ("range(0, 1, step=0.25)", FloatDistribution(0.0, 1.0, step=0.25)),
        ("interval(0.1, 0.3)", FloatDistribution(0.1, 0.3)),
        ("int(interval(1, 8))", IntDistribution(1, 8)),
        ("tag(log, interval(1e-5, 1e-3))", FloatDistribution(1e-5, 1e-3, log=True)),
        ("tag(log, int(interval(1, 64)))", IntDistribution(1, 64, log=True)),
    ],
)
def test_the_official_grammar_is_read_and_written_again(text, expected):
    space, single = parse_params({"a.b": text})
    assert space == {"a.b": expected} and single == []
    again, _ = parse_params({"a.b": format_distribution(expected)})
    assert again == space


def test_values_are_written_so_that_hydra_reads_them_again():
    given = {"a": 1e-05, "b": True, "c": None, "d": "x y", "e": "[1,2]", "f": "it's", "g": "tiny"}
    written = format_overrides(given)
    assert written == ["a=1e-05", "b=true", "c=null", "d='x y'", "e=[1,2]", "f='it\\'s'", "g=tiny"]


def test_single_values_are_no_parameters():
    space, single = parse_params({"a": 3, "b": "x", "c": None, "d": False, "e": "1,2"})
    assert single == ["a=3", "b=x", "c=null", "d=false"] and [*space] == ["e"]
    assert parse_overrides(["a.b=1", "model=tiny"]) == ({}, ["a.b=1", "model=tiny"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shuffle(1, 2)", "shuffle"),
        ("tag(wide, interval(1, 2))", "the only tag is log"),
        ("interval(2, 1)", "low"),
        ("tag(log, interval(0, 1))", "low"),
        ("choice(1, 1)", "each of its values once"),
        ("glob(*)", "give choice"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_name(text, said):
    with pytest.raises(ConfigError, match=f"^x=.*{said}"):
        parse_params({"x": text})


def test_a_grid_tries_all_arms_with_one_seed_before_the_next():
    space, _ = parse_params({"seed": "choice(0, 1)", "x": "range(0.1, 0.3, step=0.1)"})
    assert [(p["seed"], p["x"]) for p in list_grid_points(space)] == [
        (0, 0.1), (0, 0.2), (0, 0.3), (1, 0.1), (1, 0.2), (1, 0.3),
    ]  # fmt: skip


def test_parameters_are_shown_short():
    assert format_params({"optim.lr": 0.00123456, "model": "tiny"}) == "lr=0.001235 model=tiny"


def plan(**node: Any) -> StudyPlan:
    return plan_of(Path("/nowhere"), **node)


def test_a_budget_in_games_is_equal_over_arms():
    node = {
        "params": {"rollout.num_generations": "choice(2, 8, 16)"},
        "budget": {"games": 3200, "games_per_step": 64, "validations": 5},
    }

    def compose(overrides: Sequence[str]) -> dict[str, Any]:
        given = dict(o.split("=") for o in overrides)
        return {"rollout": {"groups": 64, "num_generations": int(given["rollout.num_generations"])}}

    settings = build_study_settings({"name": "s", **node})
    space, _ = parse_params(settings.params)
    made = StudyPlan(settings=settings, space=space, overrides=(), compose=compose)
    for point in made.list_points():
        [stage] = made.build_stages(point)
        given = dict(o.split("=") for o in stage)
        size = int(given["rollout.num_generations"])
        assert int(given["rollout.groups"]) * size == 64
        assert int(given["rollout.groups"]) * size * int(given["trainer.steps"]) == 3200
        assert given["trainer.validate_every"] == given["trainer.checkpoint_every"] == "10"


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"games": 160, "games_per_step": 7}, "multiple of rollout.num_generations=2"),
        ({"games": 16}, "too few for 10 validations"),
        ({"games": 0}, "budget.games must be 1 or more"),
    ],
)
def test_a_budget_that_does_not_fit_is_refused(budget, said):
    with pytest.raises(ValueError, match=said):
        made = plan(budget=budget)
        made.build_stages(made.list_points()[0])


def test_arms_and_stages_make_the_command_lines():
    made = plan(
        params={"seed": "choice(0, 1)"},
        arms={"long": ["1: trainer.steps=9", "prompt=letters"], "short": ["1: trainer.steps=3"]},
        stages=[["algorithm=sft"], ["model.path={start}"]],
        budget={"games": 80, "validations": 2},
        default={"arm": "short"},
    )
    budget = ["trainer.steps=10", "trainer.validate_every=5", "trainer.checkpoint_every=5"]
    assert made.build_stages({"arm": "long", "seed": 1}) == [
        ["algorithm=sft", "trainer.steps=9", "prompt=letters", "seed=1"],
        ["model.path={start}", "prompt=letters", "seed=1", *budget],
    ]
    assert made.build_stages({"arm": "short"})[0] == ["algorithm=sft", "trainer.steps=3"]
    assert [p["arm"] for p in made.list_points()] == ["long", "short", "long", "short"]
    assert insert_start(["model.path={start}"], Path("/a b/model")) == ["model.path='/a b/model'"]


@pytest.mark.parametrize("key", ["output_dir", "resume"])
def test_what_the_sweeper_sets_itself_is_refused(key):
    with pytest.raises(ConfigError, match=f"^{key}="):
        plan(params={key: "choice(a, b)"})


def test_a_grid_needs_lists():
    with pytest.raises(ConfigError, match=r"params: a grid needs lists"):
        plan(params={"x": "interval(0.0, 1.0)"})


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"name": "a/b"}, "letters, digits"),
        ({"sampler": {"_target_": "optuna.samplers.TPESampler"}}, "n_trials must be given"),
        ({"n_trials": 3}, "n_trials must be given with a sampler, and only then"),
        ({"grace": 60}, "grace must be 61"),
        ({"jobs": 0}, "jobs must be 1 or more"),
        ({"confirm_seeds": [1, 1]}, "must all differ"),
        ({"stages": []}, "must have a stage"),
        ({"budget": 5}, "must be a group of settings"),
    ],
)
def test_wrong_settings_are_one_clear_line(node, said):
    with pytest.raises(ValueError, match=said) as error:
        build_study_settings({"name": "s", "params": {"x": "1,2"}, **node})
    assert "\n" not in str(error.value)


def trial(value: float | None, **params: Any) -> optuna.trial.FrozenTrial:
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE if value is not None else TrialState.PRUNED,
        value=value, params=params,
        distributions={k: optuna.distributions.CategoricalDistribution([v])
                       for k, v in params.items()},
    )  # fmt: skip


def test_the_winner_has_the_best_mean_over_all_seeds():
    trials = [
        trial(0.60, x=1, seed=0), trial(0.62, x=1, seed=1),
        trial(0.70, x=2, seed=0), trial(0.50, x=2, seed=1),
        trial(0.90, x=3, seed=0), trial(None, x=3, seed=1),  # one lucky seed
    ]  # fmt: skip
    assert find_winner(trials) == {"x": 1}
    lucky = [trial(0.3, x=1, seed=0), trial(0.3, x=1, seed=1), trial(0.9, x=2, seed=0)]
    assert find_winner(lucky) == {"x": 1}, "even where its one seed is above both others together"
    assert find_winner([]) is None


TPE = {"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 3, "multivariate": True}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("node", [TPE, {"_target_": "optuna.samplers.RandomSampler"}])
def test_a_sampler_repeats_itself_by_trial_and_differs_by_seed(node):
    def points(seed: int) -> list[float]:
        study, found = optuna.create_study(), []
        for number in range(6):
            study.sampler = build_sampler({**node, "seed": seed}, number)
            trial = study.ask()
            found.append(trial.suggest_float("a", 1e-4, 1e-2, log=True))
            study.tell(trial, found[-1])
        return found

    assert points(0) == points(0) != points(1)
    assert len(set(points(0))) == 6


def test_samplers_and_pruners_are_optunas_classes_and_nothing_else():
    inner = {"_target_": "optuna.pruners.MedianPruner"}
    patient = {"_target_": "optuna.pruners.PatientPruner", "patience": 1, "wrapped_pruner": inner}
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        assert isinstance(build_pruner(patient)._wrapped_pruner, optuna.pruners.MedianPruner)
    for target in ("os.system", "optuna.samplers.os.system", "optuna.samplers.warnings", "TPE"):
        with pytest.raises(ConfigError, match=r"sampler\._target_ must be optuna\.samplers\."):
            build_sampler({"_target_": target}, 0)
    with pytest.raises(ConfigError, match=r"sampler: .*wrong"):
        build_sampler({**TPE, "wrong": 1}, 0)


def test_an_address_that_cannot_be_opened_is_one_line_without_its_password():
    for url in ("postgresql+nodriver://me:s3cret@x/y", "journal:s3cret"):
        settings = build_study_settings({"name": "s", "storage": url})
        with pytest.raises(ConfigError, match=r"hydra\.sweeper\.storage") as error:
            open_storage(settings)
        assert "s3cret" not in str(error.value) and "\n" not in str(error.value)


def test_the_same_arguments_are_the_same_study_and_others_are_another_one():
    arguments = ["optim.lr=1e-4,1e-3", "model=mini"]
    made = describe_ad_hoc(["optim.lr"], arguments)
    assert re.fullmatch(r"optim\.lr-[0-9a-f]{8}", made["name"])
    assert made == describe_ad_hoc(["optim.lr"], arguments[::-1])
    assert made["name"] != describe_ad_hoc(["optim.lr"], ["optim.lr=1e-4,1e-2"])["name"]
    build_study_settings(describe_ad_hoc([f"+a.long.setting_{i}" for i in range(20)], arguments))


# -- what a study prints ---------------------------------------------------------------------------


def test_a_study_tries_each_point_once_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = work(tmp_path, confirm_seeds=[7, 8], default={"x": 0.1})
    ended = [line for line in said if "to go" in line]
    assert [line.split()[:5] for line in ended[:3]] == [
        ["trial", str(i), f"x={x}", "complete", f"{value}"]
        for i, x, value in [(0, 0.1, 9.0), (1, 0.9, 49.0), (2, 0.5, 29.0)]
    ]
    assert "best 49.0 % (trial 1)  1 to go, about 0 min" in ended[1]
    # winner and default again, with fresh seeds
    assert [line.split()[2:4] for line in ended[3:]] == [
        [f"arm={arm}", f"seed={seed}"] for seed in (7, 8) for arm in ("winner", "default")
    ]
    _, *rows = said[-2].strip().splitlines()
    assert [row.split()[0] for row in rows] == ["x=0.9", "x=0.5", "x=0.1"]
    assert rows[0].split() == ["x=0.9", "1", "49.0", "25.0", "4.50", "0.0"]
    assert said[-1] == "study study is finished; best on validation secrets: x=0.9"


def test_a_study_of_seeds_alone_ends_with_mean_interval_and_each_seed(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"by_seed": 0.1}')
    said = work(tmp_path, params={"seed": "choice(0, 1, 2)"})
    # wins of 4, 14 and 24 %: t(2 df) * 10 points / sqrt(3)
    of_seeds = "14.0 ± 24.8 % (seed 0 4.0, seed 1 14.0, seed 2 24.0)"
    assert f"validation wins {of_seeds}" in said[-1]
    seeds = plan(params={"seed": "choice(0, 1)"}, confirm_seeds=[7, 8])
    assert build_confirmation(seeds, {}).points == [
        {"seed": 7, "arm": "winner"}, {"seed": 8, "arm": "winner"},
    ]  # fmt: skip


def test_arms_without_a_result_are_counted():
    failed = trial(None, x=1)
    failed.state, failed.user_attrs = TrialState.FAIL, {"cause": "broken"}
    _, best, worst = format_arms([failed, trial(0.5, x=2)]).splitlines()
    assert best.split()[:3] == ["x=2", "1", "50.0"]
    assert worst.split()[:5] == ["x=1", "0", "of", "1", "-"]


# -- the shipped files, and the command line -------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_shipped_study_says_what_a_reader_wants_to_know(name):
    path = ROOT / "conf" / "sweep" / f"{name}.yaml"
    text = path.read_text()
    head = text.partition("name:")[0].casefold()
    package, question, command, cost = head.splitlines()[:4]
    assert package == "# @package hydra.sweeper" and "?" in question
    assert command == f"#     python train.py -m sweep={name}" and cost.startswith("# cost: ")
    for word in ("games", "seed", "two cores"):
        assert word in head, word
    node: Any = OmegaConf.to_container(OmegaConf.load(path))
    assert node["name"] == name and node["question"].endswith("?")
    # Every trial is reported on the test secrets, the winner is run again, or named comparisons
    # of arms are judged by games on all held-out secrets.
    reported = any("trainer.report=true" in stage for stage in node.get("stages", []))
    judged = len(node.get("confirm_seeds", ())) >= 3 or "analysis" in node
    assert node["default"] is not None and (reported or judged)


# Of the quick ones, one has arms, and one a space that is sampled.
QUICK = ("gen_count", "joint")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(s, marks=pytest.mark.slow) for s in STUDIES if s not in QUICK)]
)
def test_every_shipped_study_composes_and_builds(name, study_plan):
    from wordle_rl.commands.build import build_experiment

    made: StudyPlan = study_plan(f"sweep={name}")
    made.check(build_experiment)
    if shipped := read_record(ROOT / "sweeps" / name):
        assert shipped["identity"] == made.identity(), "so that the shipped study can continue"
    if made.settings.sampler is not None:
        return
    budgets = {games_of(made, made.build_stages(point)[-1]) for point in list_probes(made.space)}
    # Equal in half of gen_count are the groups, in idle_groups the games with those of replaced
    # groups, and in one arm of idle_cost the time, as their heads explain.
    unequal = ("gen_count", "idle_groups", "idle_cost")
    assert budgets == {made.settings.budget.games} or name in unequal


def games_of(made: StudyPlan, stage: Sequence[str]) -> int:
    config = made.compose([override.replace("{start}", "embedded/tiny") for override in stage])
    rollout = config["rollout"]
    return rollout["num_generations"] * rollout["groups"] * config["trainer"]["steps"]


def test_the_values_of_the_command_line_join_a_study(study_plan):
    made = study_plan("sweep=gen_count", "seed=4", "optim.lr=1e-4,2e-4", "model=tiny")
    assert [*made.space] == ["arm", "optim.lr"]
    assert made.overrides == ("seed=4", "model='tiny'")


def test_several_values_alone_are_a_study_of_one_s_own(study_plan):
    made = study_plan("optim.lr=1e-4,2e-4", "seed=0,1", "model=tiny")
    assert [*made.space] == ["optim.lr", "seed"] and made.overrides == ("model='tiny'",)
    assert made.settings.place.parent == ROOT / "outputs" / "sweeps"
    assert [" ".join(stage[-2:]) for [stage] in map(made.build_stages, made.list_points())] == [
        f"seed={seed} optim.lr={lr}" for seed in (0, 1) for lr in (0.0001, 0.0002)
    ]


def test_a_study_of_one_s_own_may_have_a_name(study_plan):
    named = study_plan("optim.lr=1e-4,2e-4", "hydra.sweeper.name=mine")
    assert named.settings.name == "mine"
    assert named.settings.place == ROOT / "outputs" / "sweeps" / "mine"


@pytest.fixture
def study_plan():
    """The plan that python train.py -m ... makes before its first trial."""
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext, RunMode

    from wordle_rl.runs.config import quoted

    def plan(*arguments: str) -> StudyPlan:
        hydra = Hydra.create_main_hydra2("train", create_config_search_path(str(ROOT / "conf")))
        config = hydra.compose_config(
            "config", [quoted(a) for a in arguments], run_mode=RunMode.MULTIRUN,
            with_log_configuration=False,
        )  # fmt: skip
        sweeper: Any = Plugins.instance().instantiate_sweeper(
            hydra_context=HydraContext(config_loader=hydra.config_loader, callbacks=None),  # type: ignore[arg-type]
            task_function=lambda _: None, config=config,
        )  # fmt: skip
        return sweeper.build_plan(list(config.hydra.overrides.task))

    yield plan
    GlobalHydra.instance().clear()


COMMANDS = {
    "-m": "or name a study with sweep=",
    "optim.lr=1e-4,1e-3": "compare several in a study: python train.py -m optim.lr=1e-4,1e-3",
    "-m sweep=gen_cuont": "sweep must be one of",
    "sweep=gen_count": "python train.py -m sweep=gen_count",
    "-m sweep=gen_count optim.lrr=1,2": "there is no setting optim.lrr",
    "-m sweep=gen_count num_generations=3,4": "num_generations must be one of",
    "-m sweep=gen_count optim.lr=1e-3,100": "optim.lr must be 0..10",
}


SLOW = [line for line in COMMANDS if "optim.lr=" in line]


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=[pytest.mark.slow] if line in SLOW else []) for line in COMMANDS],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(line, tmp_path):
    done = subprocess.run(
        [sys.executable, "train.py", *line.split(),
         *([f"hydra.sweeper.folder={tmp_path}"] if "-m" in line else [])],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    [said] = done.stderr.strip().splitlines()
    assert said.startswith("error: ") and COMMANDS[line] in said and not done.stdout
