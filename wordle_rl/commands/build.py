"""Builds an Experiment from a composed config. Only this file and build_parts.py know both.

It also opens the file of data= and checks that the parts of a run fit together. Nothing here
imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.commands.build_parts import (
    build_algorithm,
    build_backend_settings,
    build_curriculum,
    build_history,
    build_model_settings,
    build_reward_set,
    build_servers,
    build_style,
    build_teacher,
    check_thoughts_asked,
)
from wordle_rl.commands.earlier_model import check_match, check_secrets
from wordle_rl.data.load import TrainingData, load_data
from wordle_rl.data.settings import DataSettings
from wordle_rl.data.states import StateReader
from wordle_rl.evaluation.regret import Regret
from wordle_rl.game.feedback_table import cache_folder, feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import BackendSettings, ModelSettings
from wordle_rl.rollouts.base import Recipe, RolloutKind
from wordle_rl.rollouts.history import History
from wordle_rl.runs.instantiate import ConfigError, check_seed, check_type, instantiate, option_of
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.settings import LoggerSettings, TrainerSettings
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits, WordSettings

KEYS = {  # the keys of a training config
    *("model", "backend", "algorithm", "reward", "rollout", "prompt", "words", "rules", "sampling"),
    *("curriculum", "history", "data", "trainer", "logger", "optim", "vllm"),
    *("name", "seed", "output_dir", "resume", "restart"),
    *("init_from", "init_checkpoint", "allow_mismatch"),
}


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """Turn the config into plain values. Raises ConfigError for a missing value."""
    try:
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} must be given: {error.full_key}=...") from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {str(error).splitlines()[0]}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def check_keys(config: Mapping[str, Any], keys: set[str]) -> None:
    """Raise ConfigError unless a config has exactly these keys."""
    if unknown := sorted(set(config) - keys):
        raise ConfigError(
            f"there is no setting {', '.join(unknown)}; the settings are {', '.join(sorted(keys))}"
        )
    if missing := sorted(keys - set(config)):
        raise ConfigError(f"{', '.join(missing)} must be given: the config needs every part")


def build_experiment(config: dict[str, Any]) -> Experiment:
    """Build and check everything that needs no model. Raises ValueError in one line."""
    _check_plain_values(config)
    settings: WordSettings = instantiate("words", config["words"], WordSettings)
    words, splits = settings.load()
    knowledge = Knowledge(words, feedback_table(words))
    rules: Rules = instantiate("rules", config["rules"], Rules)
    rollout: RolloutKind = instantiate("rollout", config["rollout"], RolloutKind)
    earlier = build_history(config["history"], knowledge, rules)
    sampling: Sampling = instantiate("sampling", config["sampling"], Sampling)
    algorithm = build_algorithm(config["algorithm"], rollout, rules, sampling, earlier)
    model = build_model_settings(config["model"])
    backend = build_backend_settings(config["backend"], model)
    _check_together(algorithm, rollout, backend, sampling, model)
    data = build_data(config, words, splits, rules, algorithm)
    check_data(data, algorithm, rollout, earlier)
    check_secrets(settings.protocol, words, splits, model.location)
    style = build_style(config, rules)
    if not config["allow_mismatch"]:
        check_match(model.location, style, ("rollout.form", rollout.form), words)
    recipe = Recipe(
        words=words,
        rules=rules,
        style=style,
        sampling=sampling,
        rewards=build_reward_set(config["reward"], words, knowledge, rollout.form),
        algorithm=algorithm,
        teacher=None if data and data.dialogues else build_teacher(algorithm, knowledge, style),
        secrets=data.secrets if data and data.states else settings.training_secrets(words, splits),
        allowed_secrets=settings.allowed_secrets(words, splits),
        allowed_share=settings.allowed_share,
        rollout=rollout,
        history=earlier,
        states=data.states if data else None,
        dialogues=data.dialogues if data else None,
        knowledge=knowledge,
        seed=config["seed"],
    )
    _check_recipe(recipe, splits)
    given = instantiate("trainer", config["trainer"], TrainerSettings)
    trainer: TrainerSettings = count_epochs(given, data, rollout.groups)
    return Experiment(
        config=config,
        words=words,
        splits=splits,
        knowledge=knowledge,
        regret=Regret(knowledge, rules.max_turns, trainer.tree, setting="trainer.tree"),
        model=model,
        backend=backend,
        optim=instantiate("optim", config["optim"], Optim),
        trainer=trainer,
        logger=instantiate("logger", config["logger"], LoggerSettings),
        recipe=recipe,
        curriculum=build_curriculum(config, recipe, knowledge),
        servers=build_servers(config["vllm"], rollout, model, backend),
        data=data,
        validation=splits.val,
        validation_history=_build_validation_history(config, trainer, knowledge, rules),
        test=words.answers if settings.protocol == "all" else splits.test,
    )


def _build_validation_history(
    config: Mapping[str, Any], trainer: TrainerSettings, knowledge: Knowledge, rules: Rules
) -> History | None:
    """Where validation games begin, with guesses of history.player."""
    most = trainer.validation_history
    if most >= rules.max_turns:
        raise ConfigError(
            f"trainer.validation_history must be 0 to below rules.max_turns={rules.max_turns}, so "
            f"that a turn is left to play, not {most}"
        )
    return build_history({**config["history"], "least": 0, "most": most}, knowledge, rules)


def _check_plain_values(config: Mapping[str, Any]) -> None:
    check_keys(config, KEYS)
    for name in ("name", "output_dir"):
        check_type(name, config[name], str)
    check_type("seed", config["seed"], int)
    check_seed("seed", config["seed"])
    check_type("allow_mismatch", config["allow_mismatch"], bool)


def _check_recipe(recipe: Recipe, splits: Splits) -> None:
    """Raise ConfigError for too few validation secrets, or for parts that do not fit together.

    These are rewards whose prompt does not ask for thoughts, and a teacher that cannot find a
    secret.
    """
    check_thoughts_asked(recipe.rewards, recipe.style)
    if len(splits.val) < 2:
        raise ConfigError("words.val must hold out 2 secrets or more to choose a checkpoint")
    taught = recipe.algorithm.imitates
    if recipe.teacher is None or taught is None or taught.player.endswith("_allowed"):
        return
    if {*recipe.secrets, *recipe.allowed_secrets}.difference(recipe.words.answers):
        raise ConfigError(
            "algorithm.player must be random_consistent_allowed where words.protocol=allowed or "
            "words.allowed_share makes any allowed word a secret, not "
            f"{taught.player}, which finds answers alone"
        )


def _check_together(
    algorithm: Algorithm,
    rollout: RolloutKind,
    backend: BackendSettings,
    sampling: Sampling,
    model: ModelSettings,
) -> None:
    algorithm.check(rollout.num_generations)
    rollout.check(algorithm)
    if algorithm.imitates is None:
        sampling.check_trainable()
    if algorithm.minibatches > rollout.groups:
        raise ConfigError(
            f"algorithm.minibatches must be at most rollout.groups={rollout.groups}, because "
            f"groups are not split, not {algorithm.minibatches}"
        )
    if rollout.groups % backend.processes:
        number = "backend.devices" if backend.devices > 1 else "WORLD_SIZE"
        raise ConfigError(
            f"rollout.groups must be a multiple of {number}={backend.processes}, so that each "
            f"process has the same number of groups, not {rollout.groups}"
        )
    if sampling.max_tokens >= model.max_context:
        raise ConfigError(
            f"sampling.max_tokens must be below model.max_context={model.max_context}, which must "
            f"hold a whole game, not {sampling.max_tokens}"
        )


def build_data(
    config: Mapping[str, Any],
    words: WordLists,
    splits: Splits,
    rules: Rules,
    algorithm: Algorithm,
) -> TrainingData | None:
    """Open and check the file of data=, None without one. Raises ValueError in one line."""
    settings: DataSettings = instantiate("data", config["data"], DataSettings)
    if settings.path is None:
        return None
    chosen = config["words"]
    if chosen.get("allowed_share") or chosen.get("train") is not None:
        raise ConfigError(
            "words.allowed_share must be 0 and words.train null with data=<file>, which has the "
            "secrets"
        )
    held_out = () if chosen.get("protocol") == "all" else (*splits.val, *splits.test)
    return load_data(
        settings,
        StateReader(words=words, rules=rules),
        held_out,
        imitates=algorithm.imitates is not None,
        cache=cache_folder() / "datasets",
    )


def check_data(
    data: TrainingData | None, algorithm: Algorithm, rollout: RolloutKind, history: History | None
) -> None:
    """Raise ConfigError for choices that do not go with the rows of a file, if there is one."""
    if data is None:
        return
    if data.dialogues is None:
        if history is not None:
            raise ConfigError(
                "history must be none with data=<file>, whose rows say where games begin"
            )
        return
    taught = algorithm.imitates
    if taught is None or taught.choices or taught.slips:
        raise ConfigError(
            f"algorithm must be sft to learn the answers of data={data.name}, not "
            f"{option_of(algorithm)}"
        )
    for key, value, wanted in (
        ("rollout", rollout.name, "game"),
        ("num_generations", rollout.num_generations, 1),
    ):
        if value != wanted:
            raise ConfigError(
                f"{key} must be {wanted} to learn the answers of data={data.name}, not {value}"
            )
    if rollout.form == "tool":
        raise ConfigError(
            f"rollout.form must be conversation or fresh to learn the answers of data={data.name}, "
            "not tool"
        )


def count_epochs(
    trainer: TrainerSettings, data: TrainingData | None, groups: int
) -> TrainerSettings:
    """The settings with the steps that trainer.epochs asks for. groups: rows in a step."""
    if trainer.epochs is None:
        return trainer
    if data is None:
        raise ConfigError("trainer.epochs needs data=<file>; without it, set trainer.steps")
    return replace(trainer, steps=max(1, math.ceil(trainer.epochs * data.rows / groups)))
