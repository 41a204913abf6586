"""The settings that wordle_rl.verl writes are settings of verl 0.9.1, and verl accepts them."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.helpers.configs import composed
from wordle_rl.build import build_experiment, resolve
from wordle_rl.verl_files import write_value
from wordle_rl.verl_keys import map_choices
from wordle_rl.verl_limits import ALGORITHMS

pytestmark = [
    pytest.mark.verl,
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None, reason="verl is not installed: make verl"
    ),
]
CASES = [
    *(f"model=tiny algorithm={name}" for name in ALGORITHMS),
    "model=tiny algorithm.beta=0.1 algorithm.importance_cap=2.0 algorithm.entropy=0.01",
    "model=tiny algorithm.beta=0.1 algorithm.kl=reward algorithm.minibatches=4",
    "model=tiny backend.precision=fp32 optim.schedule=constant trainer.validation_temperature=1.0",
    "model=qwen3b rollout.form=tool prompt=symbols 'name=my run'",
    "experiment=qwen3b_server",
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


def _plain(value: Any) -> str:
    """A value as bash would hand it on."""
    text = write_value(value) if not str(value).startswith("$") else str(value)
    return {"${NNODES:-1}": "1", "${GPUS:-1}": "1"}.get(text, text.replace("$here", "/files"))
