"""The settings that wordle_rl.verl writes are settings of verl 0.9.1, and verl accepts them."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.helpers.configs import composed
from tests.helpers.verl.cases import CASES, DEFAULTS, as_bash_hands_on, kind_of
from wordle_rl.adapters.verl.files import write_value
from wordle_rl.adapters.verl.keys import map_choices
from wordle_rl.commands.build import build_experiment, resolve

pytestmark = [
    pytest.mark.verl,
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None, reason="verl is not installed: make verl"
    ),
]


@pytest.mark.parametrize("line", CASES)
def test_verl_composes_and_accepts_the_settings(line):
    import shlex

    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    setup = build_experiment(resolve(composed(*shlex.split(line))))
    keys, _ = map_choices(setup)
    given = [f"{key}={_plain(value)}" for key, value in keys.items()]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=given)  # raises for a key that verl lacks
    if setup.model.lora is None:  # with LoRA, verl asks vLLM, which needs a GPU
        validate_config(config, need_reference_policy(config), need_critic(config))
    assert not need_critic(config)
    assert need_reference_policy(config) is (setup.recipe.algorithm.needs_reference)
    assert config.trainer.experiment_name == setup.config["name"]
    assert OmegaConf.select(config, "actor_rollout_ref.actor.clip_ratio_high") == (
        setup.recipe.algorithm.clip_high  # pyright: ignore[reportAttributeAccessIssue]
    )


def test_verls_limit_of_importance_weights_is_ours():
    import torch
    from hydra import compose, initialize_config_module
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    keys, _ = map_choices(build_experiment(resolve(composed("model=tiny"))))
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[f"{k}={_plain(v)}" for k, v in keys.items()])
    chosen = config.algorithm.rollout_correction
    ratios = torch.tensor([[0.5, 1.0, 1.5, 4.0]])
    weights, _ = compute_rollout_correction_weights(
        ratios.log(), torch.ones(1, 4), chosen.rollout_is, chosen.rollout_is_threshold
    )
    assert weights[0].tolist() == pytest.approx([0.5, 1.0, 1.5, 2.0])


def test_the_recorded_kinds_are_verls():
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    found = {key: kind_of(OmegaConf.select(config, key)) for key in DEFAULTS}
    assert found == DEFAULTS


def _plain(value: Any) -> str:
    """A value as bash would hand it on."""
    return write_value(as_bash_hands_on(value))
