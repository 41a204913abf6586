"""Our choices as verl's settings: keys for verl 0.9.1, and a line for each that verl cannot follow.

verl's trainer is its V1 trainer on FSDP with rollouts by vLLM. What a choice means is kept where
verl has a key for it; see docs/VERL.md. What would change the meaning of a run is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.prompts.tool_calls import TOOL
from wordle_rl.runs.instantiate import ConfigError, option_of
from wordle_rl.runs.paths import module_command
from wordle_rl.training.experiment import Experiment
from wordle_rl.verl_game import AGENT

VERSION = "0.9.1"
HERE = "$here"  # the folder of the files, in the launch script
ALGORITHMS = {  # ours -> verl's advantages, how losses are averaged, and the loss
    "grpo": ("grpo", "seq-mean-token-mean", "vanilla"),
    "dapo": ("grpo", "token-mean", "vanilla"),
    "dr_grpo": ("grpo", "seq-mean-token-sum-norm", "vanilla"),
    "rloo": ("rloo", "seq-mean-token-sum", "vanilla"),
    "gspo": ("grpo", "seq-mean-token-mean", "gspo"),
}
_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
_PLAIN = re.compile(r"[\w./:+-]+")  # what Hydra reads as one value without quotes
_NEVER = 1e9  # a limit that nothing reaches
_TEMPLATE = 512  # bytes that a chat template adds to a first prompt, at most
_KEPT_CHECKPOINTS = 2  # as in our runs, whose best one is kept, too

Keys = dict[str, Any]

# Key of ours -> the value without effect, and what happens in verl with any other.
UNFOLLOWED: dict[str, tuple[Any, str]] = {
    "rollout.credit": ("game", "each turn of a game gets the advantage of the whole game"),
    "rollout.discount": (1.0, "later turns count in full, because credit is by game"),
    "rollout.letter_weight": (0.0, "no letter has an advantage of its own"),
    "rollout.games_at_once": (None, f"set {_ROLLOUT}.max_num_seqs for the memory of games"),
    "model.quantize": (None, "the base is not rounded"),
    "model.revision": ("main", "verl loads main: fetch that revision, and name its folder"),
    "backend.accelerator": ("auto", "verl computes on GPUs"),
    "backend.threads": ("auto", "verl decides about threads"),
    "backend.compile": (None, "verl has a compilation of its own"),
    "backend.cache_gb": (None, "it is for MLX alone"),
    "optim.momentum": (None, "it is for Muon alone"),
    "optim.rest_lr_ratio": (None, "it is for Muon alone"),
    "trainer.watch_every": (0, "no greedy games between validations"),
    "trainer.report": (False, "no report: play test.parquet with trainer.val_only=true"),
    "trainer.report_limit": (None, "there is no report"),
    "trainer.tree": (None, "no regret is measured"),
    "trainer.memory_limit_gb": (None, "no limit of memory"),
    "trainer.device_memory_limit_gb": (None, f"set {_ROLLOUT}.gpu_memory_utilization"),
    "trainer.last_line": (None, "nothing is printed at the end"),
    "logger.csv": (False, "no metrics.csv"),
}


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
    return keys, [f"verl cannot follow {line}" for line in _list_unfollowed(setup)]


def check_choices(setup: Experiment) -> None:
    """Raise ConfigError for choices that no key of verl can stand for."""
    config, recipe = setup.config, setup.recipe
    for key in ("init_from", "resume"):
        if config[key] is not None:
            raise ConfigError(
                f"{key} must be null for verl: write the run's model with "
                f"{module_command('export')} run={config[key]} format=merged, and give "
                "model.path=<its folder>"
            )
    if option_of(recipe.algorithm) not in ALGORITHMS:
        raise ConfigError(
            f"algorithm must be {', '.join(ALGORITHMS)} for verl, not {option_of(recipe.algorithm)}"
        )
    for key, value, allowed in (
        ("rollout", recipe.rollout.name, ("game", "turn")),
        ("rollout.form", recipe.rollout.form, ("conversation", "tool")),
    ):
        if value not in allowed:
            raise ConfigError(f"{key} must be {' or '.join(allowed)} for verl, not {value}")
    if recipe.rollout.groups % recipe.algorithm.minibatches:
        raise ConfigError(
            f"algorithm.minibatches must divide rollout.groups={recipe.rollout.groups} for verl, "
            f"not {recipe.algorithm.minibatches}"
        )
    location = Path(setup.model.location)
    if setup.model.shape or (location / "adapter_config.json").is_file():
        what = "an adapter" if not setup.model.shape else "an untrained model"
        raise ConfigError(
            f"model.path must be a hub name or a folder with whole weights for verl, not {what}: "
            f"{setup.model.path}"
        )


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
    if algorithm.importance_cap is not None:
        keys["algorithm.rollout_correction.rollout_is"] = "token"
        keys["algorithm.rollout_correction.rollout_is_threshold"] = algorithm.importance_cap
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
        "trainer.default_local_dir": f"{HERE}/checkpoints",
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


def write_value(value: Any) -> str:
    """A value as Hydra reads it on a command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(write_value, value))}]"
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _list_unfollowed(setup: Experiment) -> Iterator[str]:
    config, algorithm = setup.config, setup.recipe.algorithm
    muon = setup.optim.name == "muon"
    for key, (neutral, what) in UNFOLLOWED.items():
        group, _, name = key.partition(".")
        value = config[group].get(name, neutral)
        if value != neutral and (muon or "Muon" not in what):
            yield f"{key}={write_value(value)}: {what}"
    if option_of(setup.curriculum) != "none":
        yield f"curriculum={option_of(setup.curriculum)}: rewards and secrets stay as they are"
    if muon:
        yield f"optim=muon: AdamW trains every weight, with optim.lr={setup.optim.lr:g}"
    if setup.optim.schedule == "constant" and setup.optim.warmup_steps:
        yield "optim.warmup_steps with optim.schedule=constant: verl's rate is one step behind"
    if setup.backend.name == "mlx":
        yield "backend=mlx: verl computes with torch"
    if setup.recipe.history is not None:
        yield "history by step: where a game begins is drawn once per row of the file"
    if setup.recipe.allowed_share:
        yield "words.allowed_share by step: it is the share of such secrets among the rows"
    if algorithm.resample_rounds:
        yield f"algorithm.resample={algorithm.resample_rounds}: verl replaces groups without limit"
    if isinstance(algorithm, Dapo) and algorithm.overlong == "filter":
        yield "algorithm.overlong=filter: answers that were cut off are trained on"
