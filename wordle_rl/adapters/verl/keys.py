"""Our choices as verl's settings: keys for verl 0.9.1, and a line for each that verl cannot follow.

verl's trainer is its V1 trainer on FSDP with rollouts by vLLM. See docs/VERL.md.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from wordle_rl.adapters.verl.game import AGENT
from wordle_rl.adapters.verl.limits import ALGORITHMS, check_choices, list_unfollowed
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.prompts.tool_calls import TOOL
from wordle_rl.runs.instantiate import ConfigError, option_of
from wordle_rl.training.experiment import Experiment

VERSION = "0.9.1"
HERE = "$here"  # the folder of the files, in the launch script
CHECKPOINTS = "checkpoints"  # verl's folder inside it
_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
_NEVER = 1e9  # a limit that nothing reaches
_TEMPLATE = 512  # bytes that a chat template adds to a first prompt, at most
_KEPT_CHECKPOINTS = 2  # as in our runs, whose best one is kept, too

Keys = dict[str, Any]


def map_choices(setup: Experiment) -> tuple[Keys, list[str]]:
    """verl's settings for a run, and a line for each choice that verl cannot follow.

    Raises ConfigError for a choice without which the run would be another one.
    """
    check_choices(setup)
    keys = {
        **_map_data(setup),
        **_map_algorithm(setup),
        **_map_model(setup),
        **_map_optim(setup),
        **_map_rollout(setup),
        **_map_trainer(setup),
    }
    return keys, [f"verl cannot follow {line}" for line in list_unfollowed(setup)]


def _map_data(setup: Experiment) -> Keys:
    return {
        "data.train_files": f"{HERE}/train.parquet",
        "data.val_files": f"{HERE}/val.parquet",
        "data.train_batch_size": setup.recipe.rollout.groups,
        "data.max_prompt_length": bound_prompt(setup),
        # The agent loop keeps a whole game below model.max_context.
        "data.max_response_length": setup.model.max_context,
        "data.seed": setup.recipe.seed,
        "data.shuffle": True,
        "data.return_raw_chat": True,
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
    }


def bound_prompt(setup: Experiment) -> int:
    """At least the tokens of a first prompt. A token has one byte or more."""
    style, recipe = setup.recipe.style, setup.recipe
    size = len(style.system.encode()) + len(style.rules.encode()) + _TEMPLATE
    size += 200 * (1 + setup.most_given)  # a message for each earlier guess
    if recipe.rollout.form == "tool":
        size += len(json.dumps(TOOL)) + 2 * _TEMPLATE
    return min(size, setup.model.max_context - 1)


def _map_algorithm(setup: Experiment) -> Keys:
    algorithm, groups = setup.recipe.algorithm, setup.recipe.rollout.groups
    assert isinstance(algorithm, PolicyGradient)
    advantages, mean, loss = ALGORITHMS[option_of(algorithm)]
    in_loss = algorithm.beta > 0 and algorithm.kl == "loss"
    in_reward = algorithm.beta > 0 and algorithm.kl == "reward"
    keys: Keys = {
        "algorithm.adv_estimator": advantages,
        "algorithm.norm_adv_by_std_in_grpo": algorithm.scale == "std",
        "algorithm.use_kl_in_reward": in_reward,
        f"{_ACTOR}.policy_loss.loss_mode": loss,
        f"{_ACTOR}.loss_agg_mode": mean,
        f"{_ACTOR}.clip_ratio": algorithm.clip_low,
        f"{_ACTOR}.clip_ratio_low": algorithm.clip_low,
        f"{_ACTOR}.clip_ratio_high": algorithm.clip_high,
        f"{_ACTOR}.clip_ratio_c": _NEVER,  # a second clip, which our losses do not have
        f"{_ACTOR}.entropy_coeff": algorithm.entropy,
        f"{_ACTOR}.use_kl_loss": in_loss,
        f"{_ACTOR}.ppo_epochs": algorithm.epochs,
        f"{_ACTOR}.ppo_mini_batch_size": groups // algorithm.minibatches,
    }
    if in_loss:
        keys |= {f"{_ACTOR}.kl_loss_coef": algorithm.beta, f"{_ACTOR}.kl_loss_type": "low_var_kl"}
    if in_reward:
        keys |= {"algorithm.kl_ctrl.kl_coef": algorithm.beta, "algorithm.kl_penalty": "kl"}
    # verl takes a number alone, and its vLLM draws all tokens, whatever rollout.engine says.
    cap = dataclasses.replace(algorithm, drawn_elsewhere=True).cap
    if cap is not None:
        keys["algorithm.rollout_correction.rollout_is"] = "token"
        keys["algorithm.rollout_correction.rollout_is_threshold"] = cap
    if algorithm.resample_rounds:
        keys |= {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "reward"}
    if isinstance(algorithm, DrGrpo):
        keys[f"{_ACTOR}.loss_scale_factor"] = algorithm.normalizer or algorithm.budget
    return keys


def _map_model(setup: Experiment) -> Keys:
    model, backend = setup.model, setup.backend
    longest = model.max_context
    tokens = 4 * longest if backend.micro_batch_tokens == "auto" else backend.micro_batch_tokens
    full = backend.precision == "fp32"
    keys: Keys = {
        f"{_MODEL}.path": model.location,
        f"{_MODEL}.enable_gradient_checkpointing": getattr(backend, "gradient_checkpointing", True),
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": max(tokens, longest),
        f"{_ROLLOUT}.dtype": "float32" if full else "bfloat16",
    }
    if full:
        for kind in ("param", "reduce"):
            keys[f"+{_ACTOR}.fsdp_config.mixed_precision.{kind}_dtype"] = "fp32"
    if lora := model.lora:
        keys |= {
            f"{_MODEL}.lora_rank": lora.rank,
            f"{_MODEL}.lora_alpha": int(lora.alpha)
            if lora.alpha == int(lora.alpha)
            else lora.alpha,
            f"{_MODEL}.target_modules": lora.targets,
            f"{_ROLLOUT}.load_format": "safetensors",  # vLLM needs the base when it starts
        }
    return keys


def _map_optim(setup: Experiment) -> Keys:
    optim = setup.optim
    keys: Keys = {
        "lr": optim.lr,
        "weight_decay": optim.weight_decay,
        "betas": [optim.beta1, optim.beta2],
        "clip_grad": optim.clip_grad_norm or _NEVER,
        "lr_warmup_steps": optim.warmup_steps,
        "lr_scheduler_type": optim.schedule,
    }
    if optim.schedule == "cosine":
        keys |= {"min_lr_ratio": optim.final_lr_ratio, "zero_indexed_step": False}
    return {f"{_ACTOR}.optim.{key}": value for key, value in keys.items()}


def _map_rollout(setup: Experiment) -> Keys:
    trainer, sampling = setup.trainer, setup.recipe.sampling
    keys: Keys = {
        "name": "vllm",
        "n": setup.recipe.rollout.num_generations,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "calculate_log_probs": True,
        "max_model_len": setup.model.max_context,
        "tensor_model_parallel_size": 1,
        "agent.default_agent_loop": AGENT,
        "agent.agent_loop_config_path": f"{HERE}/agent_loop.yaml",
        "val_kwargs.n": trainer.validation_samples,
        "val_kwargs.temperature": trainer.validation_temperature,
        "val_kwargs.do_sample": trainer.validation_temperature > 0,
    }
    return {f"{_ROLLOUT}.{key}": value for key, value in keys.items()}


def _map_trainer(setup: Experiment) -> Keys:
    trainer, logger, groups = setup.trainer, setup.logger, setup.recipe.rollout.groups
    loggers = ["console", *(n for n in ("tensorboard", "wandb") if getattr(logger, n))]
    return {
        "reward.num_workers": 1,  # idle, because the agent loop gives the reward
        "trainer.project_name": logger.wandb_project,
        "trainer.experiment_name": setup.config["name"],
        "trainer.logger": loggers,
        "trainer.nnodes": "${NNODES:-1}",
        "trainer.n_gpus_per_node": f"${{GPUS:-{setup.backend.devices}}}",
        "trainer.total_training_steps": trainer.steps,
        "trainer.total_epochs": _count_epochs(setup, trainer.steps * groups),
        "trainer.test_freq": trainer.validate_every,
        "trainer.save_freq": trainer.checkpoint_every,
        "trainer.max_actor_ckpt_to_keep": _KEPT_CHECKPOINTS,
        "trainer.val_before_train": True,
        "trainer.log_val_generations": trainer.show_games,
        "trainer.default_local_dir": f"{HERE}/{CHECKPOINTS}",
    }


def _count_epochs(setup: Experiment, rows: int) -> int:
    """Enough epochs for so many rows. An epoch drops the rows that fill no step."""
    groups = setup.recipe.rollout.groups
    each = len(setup.recipe.states or setup.recipe.secrets) // groups * groups
    if not each:
        raise ConfigError(
            f"rollout.groups must be at most the number of training rows for verl, not {groups}"
        )
    return math.ceil(rows / each) + 1
