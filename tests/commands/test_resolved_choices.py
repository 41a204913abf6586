"""A run's first lines name its choices, and which of them a model or a rollout made."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from tests.helpers.commands import SMALL_RUN
from wordle_rl.build import resolve
from wordle_rl.resolved_choices import choice_lines
from wordle_rl.runs.config import quoted
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import ROOT
from wordle_rl.train import train

DEFAULTS = (
    "choices: model=tiny backend=lightning algorithm=grpo reward=phase2 curriculum=none "
    "rollout=game num_generations=8 history=none prompt=symbols optim=muon words=original "
    "rules=original sampling=default"
)


def with_hydra(*overrides: str) -> Any:
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose("config", [quoted(o) for o in overrides], return_hydra_config=True)


def lines(*overrides: str) -> list[str]:
    cfg = with_hydra(*overrides)
    choices = {group: option for group, option in cfg.hydra.runtime.choices.items() if option}
    return choice_lines(choices, [quoted(o) for o in overrides], resolve(plain(cfg)))


def plain(cfg: Any) -> Any:
    with open_dict(cfg):
        cfg.pop("hydra")
    return cfg


def start(*given: str) -> None:
    """Train in this process as the command does."""
    cfg = with_hydra(*given)
    HydraConfig.instance().set_config(cfg)
    train(plain(cfg), given)


def test_the_defaults_are_one_line():
    assert lines() == [DEFAULTS]


def test_what_a_model_chose_by_itself_is_said():
    choices, chosen = lines("model=qwen3b")
    assert "model=qwen3b" in choices and "prompt=state_think" in choices
    assert chosen == "chosen by model=qwen3b: prompt=state_think optim=adamw"


def test_single_values_of_other_groups_are_said_too():
    chosen = lines("model=gemma4b-mlx")[1]
    assert "num_generations=4" in chosen and "rollout.groups=4" in chosen
    assert "rollout.groups" not in lines("model=gemma4b-mlx", "rollout.groups=6")[1]


def test_what_the_command_line_names_was_not_chosen_by_the_model():
    choices, chosen = lines("model=qwen3b", "prompt=letters")
    assert "prompt=letters" in choices and chosen == "chosen by model=qwen3b: optim=adamw"
    assert len(lines("model=qwen3b", "prompt=state_think", "optim=adamw")) == 1


def test_rollouts_and_experiments_choose_as_well():
    assert lines("rollout=turn")[1:] == ["chosen by rollout=turn: history=upto4"]
    choices, chosen = lines("experiment=make_tiny")
    assert choices.startswith("choices: experiment=make_tiny model=untrained ")
    assert chosen == (
        "chosen by experiment=make_tiny: model=untrained algorithm=distill reward=win_only "
        "num_generations=1"
    )


def test_a_number_of_generations_that_is_no_option_is_shown_as_it_was_given():
    assert "rollout.num_generations=6" in lines("rollout.num_generations=6")[0]
    assert " num_generations=8" not in lines("rollout.num_generations=6")[0]


def test_what_comes_from_an_earlier_run_is_not_shown_as_an_option():
    choices, taken = lines("init_from=outputs/first", "prompt=symbols", "algorithm=dapo")
    assert taken == "taken from init_from=outputs/first: model, optim"
    assert "prompt=symbols" in choices and "algorithm=dapo" in choices
    assert " model=" not in choices and " optim=" not in choices


def test_the_backend_of_an_earlier_run_replaces_the_chosen_one():
    config = resolve(plain(with_hydra("init_from=outputs/first", "backend=mlx")))
    choices, taken = choice_lines({"model": "tiny", "backend": "lightning"}, [], config)
    assert taken.endswith("model, backend") and "backend=" not in choices


@pytest.fixture
def hydra_started():
    """Hydra as it is while a command runs."""
    before = HydraConfig.instance().cfg
    yield
    HydraConfig.instance().cfg = before


def test_a_run_prints_its_choices_and_a_resumed_run_prints_them_again(
    hydra_started, tmp_path: Path, capsys, monkeypatch
):
    given = shlex.split(f"{SMALL_RUN} output_dir={tmp_path} trainer.steps=1 optim=adamw")
    monkeypatch.setattr(sys, "argv", ["train.py", *given])
    start(*given)
    [folder] = tmp_path.iterdir()
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("choices")]
    assert RunFolder(folder).manifest()["choices"]["optim"] == "adamw"
    assert "model=untrained" in printed[0] and "optim=adamw" in printed[0]
    monkeypatch.setattr(sys, "argv", ["train.py", f"resume={folder}"])
    start(f"resume={folder}")
    assert printed[0] in capsys.readouterr().out.splitlines()
