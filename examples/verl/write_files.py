"""Write what verl needs to train on our games.

    python examples/verl/write_files.py model=qwen3b reward=phase2 output=outputs/verl

Settings are those of train.py. The output folder gets the secrets of train, val and test as
Parquet files, the settings of the agent loop, and verl's own keys as far as they depend on the
experiment. examples/verl/train.sh starts verl 0.9.1 with them. See docs/SCALE.md.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from verl_game import VerlGame, choose_settings

from wordle_rl.algorithms.base import START
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import State
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.files import write_bytes
from wordle_rl.runs.instantiate import ConfigError, check_choice, option_of
from wordle_rl.runs.paths import ROOT
from wordle_rl.runs.tables import write_table
from wordle_rl.training.experiment import Experiment

AGENT, LOOP = "wordle", "verl_loop.WordleLoop"
PARTS = ("train", "val", "test")
YAML, KEYS, CHECKPOINTS = "agent_loop.yaml", "keys.txt", "checkpoints"
_NEVER = 1e9  # a limit that nothing reaches
_ALGORITHMS = {  # ours -> verl's advantages, how losses are averaged, and the loss
    "grpo": ("grpo", "seq-mean-token-mean", "vanilla"),
    "dapo": ("grpo", "token-mean", "vanilla"),
    "dr_grpo": ("grpo", "seq-mean-token-sum-norm", "vanilla"),
    "rloo": ("rloo", "seq-mean-token-sum", "vanilla"),
    "gspo": ("grpo", "seq-mean-token-mean", "gspo"),
}
Row = dict[str, Any]
_OUTPUT = "output="


def check_choices(setup: Experiment) -> None:
    """Raise ConfigError for choices with which the run in verl would be another one."""
    recipe, model = setup.recipe, setup.model
    check_choice("algorithm", option_of(recipe.algorithm), (*_ALGORITHMS,))
    check_choice("algorithm.reference", recipe.algorithm.reference, (START,))
    check_choice("rollout", recipe.rollout.kind, ("game", "turn"))
    check_choice("rollout.form", recipe.rollout.form, ("conversation", "tool"))
    if keys := [key for key in ("init_from", "resume") if setup.config[key] is not None]:
        raise ConfigError(f"{keys[0]} must be null for verl, not {setup.config[keys[0]]}")
    if recipe.sampling.grammar is not None:
        raise ConfigError("sampling.grammar must be null for verl, which draws without it")
    if setup.trainer.lag:
        raise ConfigError(f"trainer.lag must be 0 for verl, not {setup.trainer.lag}")
    if model.shape or model.is_adapter:
        raise ConfigError(
            f"model.path must be a hub name or a folder with whole weights for verl, not "
            f"{model.path}"
        )


def build_rows(setup: Experiment) -> dict[str, list[Row]]:
    """The rows of each part: train, val and test."""
    recipe, turns = setup.recipe, setup.recipe.rules.max_turns
    if recipe.states is not None:
        states = [recipe.states[i] for i in range(len(recipe.states))]
        secrets, starts = [g.secret for g in states], [g.state(turns) for g in states]
    else:
        secrets = _choose_training_secrets(recipe)
        starts = [State(max_turns=turns)] * len(secrets)
        if recipe.history is not None:
            starts = recipe.history.states(
                secrets, range(len(secrets)), seed=recipe.seed, step=0, max_turns=turns
            )
    opening = [State(max_turns=turns)]
    return {
        "train": _rows_of(setup, "train", secrets, starts),
        "val": _rows_of(setup, "val", setup.validation, opening * len(setup.validation)),
        "test": _rows_of(setup, "test", setup.test, opening * len(setup.test)),
    }


def _choose_training_secrets(recipe: Recipe) -> list[str]:
    """The training secrets, and as many allowed words as words.allowed_share asks for."""
    share, pool = recipe.allowed_share, recipe.allowed_secrets
    if not share:
        return list(recipe.secrets)
    secrets = [] if share == 1 else list(recipe.secrets)
    number = round(len(secrets) * share / (1 - share)) if share < 1 else len(recipe.secrets)
    draw = generator(Purpose.ALLOWED_SECRETS, seed=recipe.seed)
    return [*secrets, *(pool[i] for i in draw.permutation(len(pool))[:number])]


def _rows_of(
    setup: Experiment, part: str, secrets: Sequence[str], starts: Sequence[State]
) -> list[Row]:
    style = setup.recipe.style
    return [
        {
            "data_source": AGENT,
            "agent_name": AGENT,
            # verl shows it; the agent loop makes the prompt's tokens from the state.
            "prompt": [
                {"role": "system", "content": style.system},
                {"role": "user", "content": style.opening(state)},
            ],
            "ability": "game",
            "reward_model": {"style": "rule", "ground_truth": secret},
            "extra_info": {
                "split": part,
                "index": number,
                "secret": secret,
                # As text, because Parquet has no type for a column of empty lists.
                "past_guesses": json.dumps([[clue.guess, clue.marks] for clue in state.clues]),
                "splits": setup.splits.digest,
            },
        }
        for number, (secret, state) in enumerate(zip(secrets, starts, strict=True))
    ]


def map_keys(setup: Experiment) -> dict[str, Any]:
    """verl's keys that differ from experiment to experiment."""
    actor, rollout, model = (f"actor_rollout_ref.{p}" for p in ("actor", "rollout", "model"))
    recipe, optim, settings = setup.recipe, setup.optim, setup.model
    algorithm, groups = recipe.algorithm, recipe.rollout.groups
    assert isinstance(algorithm, PolicyGradient)
    advantages, mean, loss = _ALGORITHMS[option_of(algorithm)]
    keys: dict[str, Any] = {
        f"{model}.path": settings.location,
        "data.train_batch_size": groups,
        "data.max_prompt_length": settings.max_context - 1,
        "data.max_response_length": settings.max_context,
        "data.seed": recipe.seed,
        f"{rollout}.max_model_len": settings.max_context,
        f"{rollout}.n": recipe.rollout.num_generations,
        f"{rollout}.temperature": recipe.sampling.temperature,
        f"{actor}.ppo_max_token_len_per_gpu": 4 * settings.max_context,
        f"{actor}.ppo_mini_batch_size": max(groups // algorithm.minibatches, 1),
        f"{actor}.ppo_epochs": algorithm.epochs,
        f"{actor}.optim.lr": optim.lr,
        f"{actor}.optim.lr_warmup_steps": optim.warmup_steps,
        f"{actor}.optim.lr_scheduler_type": optim.schedule,
        f"{actor}.optim.weight_decay": optim.weight_decay,
        f"{actor}.optim.betas": [optim.beta1, optim.beta2],
        f"{actor}.optim.clip_grad": optim.clip_grad_norm or _NEVER,
        "algorithm.adv_estimator": advantages,
        "algorithm.norm_adv_by_std_in_grpo": algorithm.scale == "std",
        f"{actor}.loss_agg_mode": mean,
        f"{actor}.policy_loss.loss_mode": loss,
        f"{actor}.clip_ratio_low": algorithm.clip_low,
        f"{actor}.clip_ratio_high": algorithm.clip_high,
        f"{actor}.entropy_coeff": algorithm.entropy,
        f"{actor}.use_kl_loss": algorithm.beta > 0 and algorithm.kl == "loss",
        f"{actor}.kl_loss_coef": algorithm.beta,
        "algorithm.use_kl_in_reward": algorithm.beta > 0 and algorithm.kl == "reward",
        "algorithm.kl_ctrl.kl_coef": algorithm.beta,
        "trainer.experiment_name": setup.config["name"],
        "trainer.total_training_steps": setup.trainer.steps,
        "trainer.test_freq": setup.trainer.validate_every,
        "trainer.save_freq": setup.trainer.checkpoint_every,
    }
    if optim.schedule == "cosine":
        keys[f"{actor}.optim.min_lr_ratio"] = optim.final_lr_ratio
        keys[f"{actor}.optim.zero_indexed_step"] = False
    # verl's vLLM draws all tokens, whatever rollout.engine says.
    if (cap := dataclasses.replace(algorithm, drawn_elsewhere=True).cap) is not None:
        keys["algorithm.rollout_correction.rollout_is"] = "token"
        keys["algorithm.rollout_correction.rollout_is_threshold"] = cap
    if isinstance(algorithm, DrGrpo):
        keys[f"{actor}.loss_scale_factor"] = algorithm.normalizer or algorithm.budget
    if lora := settings.lora:
        keys[f"{model}.lora_rank"], keys[f"{model}.lora_alpha"] = lora.rank, round(lora.alpha)
    return keys


def write_folder(folder: Path, setup: Experiment) -> dict[str, int]:
    """Write all files. Returns the number of rows of each part. Raises ConfigError."""
    if (folder / CHECKPOINTS).exists():
        raise ConfigError(f"output={folder} has the checkpoints of another run: name another one")
    check_choices(setup)
    settings, rows, keys = choose_settings(setup), build_rows(setup), map_keys(setup)
    game = VerlGame(settings)
    for row in (row for part in PARTS for row in rows[part]):
        game.begin(row["extra_info"])  # raises for a secret in the wrong part
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        write_table(folder / f"{part}.parquet", rows[part], "parquet")
    # Plain values: verl's Hydra must build the loop, but nothing of the settings inside it.
    loop = {"name": AGENT, "_target_": LOOP, "_recursive_": False, "_convert_": "all"}
    text = yaml.safe_dump([{**loop, "game": settings}], sort_keys=False, allow_unicode=True)
    write_bytes(folder / YAML, text.encode())
    lines = [f"{key}={value!r}\n" for key, value in keys.items()]
    write_bytes(folder / KEYS, "".join(lines).encode())
    return {part: len(rows[part]) for part in PARTS}


def main(settings: list[str]) -> None:
    """settings: output=<folder>, and as train.py."""
    folders = [value.removeprefix(_OUTPUT) for value in settings if value.startswith(_OUTPUT)]
    if len(folders) != 1 or not folders[0]:
        raise ConfigError("output must be given once: output=<folder>")
    others = [value for value in settings if not value.startswith(_OUTPUT)]
    if not any(value.startswith("experiment=") for value in others):
        others.insert(0, "experiment=none")  # verl follows little of what the demo sets
    setup = build_experiment(resolve(compose_config("config", others)))
    folder = ROOT / folders[0]
    counts = write_folder(folder, setup)
    print(f"{folder}: {', '.join(f'{rows:,} {part}' for part, rows in counts.items())} rows")
    print(f"splits: {setup.splits.digest}")
    print("not followed by verl: credit by turn, discounts, curricula, Muon, 4 bit, our report")
    print(f"start: bash examples/verl/train.sh {folder}")


if __name__ == "__main__":
    with user_errors():
        main(sys.argv[1:])
