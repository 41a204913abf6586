"""A run's first lines name what it chose, and a resumed run names the same."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from tests.helpers.commands import SMALL_RUN
from wordle_rl.commands.train import describe_choices, train
from wordle_rl.runs.config import quoted
from wordle_rl.runs.paths import ROOT


def with_hydra(*overrides: str) -> Any:
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose("config", [quoted(o) for o in overrides], return_hydra_config=True)


def line(*overrides: str) -> str:
    chosen = with_hydra(*overrides).hydra.runtime.choices
    return describe_choices({group: option for group, option in chosen.items() if option})


def test_a_run_names_what_differs_from_the_defaults_whoever_chose_it():
    assert line() == line("reward=phase2") == "choices: the defaults of conf/config.yaml"
    assert line("rollout=turn", "seed=3") == "choices: rollout=turn history=upto4"
    assert "optim=adamw" in line("model=qwen3b")
    assert "optim" not in line("model=qwen3b", "optim=muon")


@pytest.fixture
def started():
    """Trains as the command does, with Hydra as it is while a command runs."""
    before = HydraConfig.instance().cfg

    def start(*given: str) -> None:
        cfg = with_hydra(*given)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            cfg.pop("hydra")
        train(cfg, given)

    yield start
    HydraConfig.instance().cfg = before


def test_a_resumed_run_prints_the_choices_of_its_manifest(started, tmp_path, capsys):
    started(*shlex.split(f"{SMALL_RUN} output_dir={tmp_path} trainer.steps=1 optim=adamw"))
    [first] = [one for one in capsys.readouterr().out.splitlines() if one.startswith("choices: ")]
    assert "algorithm=sft" in first and "optim=adamw" in first and "reward" not in first
    [folder] = tmp_path.iterdir()
    started(f"resume={folder}")
    assert first in capsys.readouterr().out.splitlines()
