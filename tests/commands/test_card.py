"""The words that the project was asked for: each is typed here, and none may go."""

import re
import sys

import pytest

from tests.helpers.configs import OPTIONS
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.composed import run_composed
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.experiment import Experiment

MODELS = {
    "gemma4b-mlx": "mlx-community/gemma-3-4b-it-bf16",
    "qwen1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "qwen3b": "Qwen/Qwen2.5-3B-Instruct",
}
NUMBERS = ("1", "2", "4", "8", "16")
EXTRAS = {  # what a word needs beside it
    "curriculum=linear": "reward=phase2",  # whose components phase1 has, too
    "num_generations=1": "algorithm=sft algorithm.player=random_consistent_allowed",
}
GROUPS = ("reward", "curriculum", "history", "backend", "num_generations")
WORDS = [f"{group}={option}" for group in GROUPS for option in OPTIONS[group]]
WORDS += ["num_generations=12", "model=qwen3b reward=phase2"]


def build(*overrides: str) -> Experiment:
    return build_experiment(resolve(compose_config("config", overrides)))


def test_every_group_has_at_least_the_options_that_were_named() -> None:
    assert {*OPTIONS["backend"]} == {"lightning", "mlx"}
    assert {*OPTIONS["num_generations"]} == {*NUMBERS}
    assert {"phase1", "phase2"} <= {*OPTIONS["reward"]} and {*MODELS} <= {*OPTIONS["model"]}
    assert "gen_count" in OPTIONS["sweep"]


@pytest.mark.parametrize("words", WORDS)
def test_every_word_is_a_run_of_the_demo(words: str) -> None:
    setup = build(*words.split(), *EXTRAS.get(words, "").split())
    assert setup.recipe.rollout.groups > 0


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_the_one_of_its_name_with_lora(model: str) -> None:
    config = resolve(compose_config("config", [f"model={model}"]))["model"]
    assert config["path"] == MODELS[model] and config["lora"]["rank"] > 0


def test_training_alone_is_the_demo() -> None:
    setup = build()
    assert (setup.model.name, setup.trainer.steps) == ("mini", 40)


@pytest.mark.parametrize("number", ["2", "8", "12"])
@pytest.mark.parametrize(
    "other", ["seed=0", "model=gemma4b-mlx", "experiment=quick", "rollout=turn"]
)
def test_a_typed_number_wins_over_the_models_and_the_experiments(other: str, number: str) -> None:
    for args in ([other, f"num_generations={number}"], [f"num_generations={number}", other]):
        config = compose_config("config", args)
        assert config.num_generations == config.rollout.num_generations == int(number)


def test_a_number_out_of_range_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"num_generations must be .* 1\.\.10000, not 0"):
        build("num_generations=0")


def test_the_study_of_group_sizes_has_the_numbers_that_were_named(study_plan) -> None:
    plan = study_plan("sweep=gen_count")
    assert {*plan.settings.arms} >= {*NUMBERS[1:]}
    for number in NUMBERS[1:]:
        config = plan.compose(plan.build_run({"arm": number, "seed": 0}))
        assert config["rollout"]["num_generations"] == int(number)
    grid = study_plan("num_generations=2,6", "model=micro")
    sizes = [grid.compose(grid.build_run(point))["rollout"] for point in grid.points or ()]
    assert [size["num_generations"] for size in sizes] == [2, 6]


def test_the_page_of_the_group_marks_the_number_in_force(capsys, monkeypatch) -> None:
    for args, mark in ([], "*8"), (["experiment=quick"], "*4"), (["num_generations=16"], "*16"):
        monkeypatch.setattr(sys, "argv", ["train.py", "--help", "num_generations", *args])
        run_composed("config")
        lines = capsys.readouterr().out.splitlines()
        names = [line.split()[0] for line in lines if re.match(r"  \*?\d", line)]
        assert [name.strip("*") for name in names] == [*NUMBERS]
        assert [name for name in names if name.startswith("*")] == [mark]


def test_the_top_level_is_as_it_was_asked_for() -> None:
    folders = ("conf", "wordle_rl", "sweeps", "outputs", "tests")
    assert all((ROOT / name).is_dir() for name in folders)
    assert all((ROOT / name).is_file() for name in ("train.py", "eval.py", "pyproject.toml"))
