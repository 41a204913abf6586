"""From a composed config to objects: the one place that knows both.

A node with `_target_` becomes that class, called with the node's other keys. Only classes of this
package may be named, so that a config file cannot run anything else. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.feedback import feedback_table
from wordle_rl.game import Rules
from wordle_rl.knowledge import Knowledge
from wordle_rl.optim import Optim
from wordle_rl.players import Player
from wordle_rl.players.greedy_entropy import GreedyEntropy
from wordle_rl.players.random_consistent import RandomConsistent
from wordle_rl.prompts import PromptStyle
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.sampling import Sampling
from wordle_rl.settings import (
    LightningSettings,
    LoggerSettings,
    LoraSettings,
    ModelSettings,
    RolloutSettings,
    TrainerSettings,
    WordSettings,
)
from wordle_rl.splits import Splits
from wordle_rl.step import Lab
from wordle_rl.words import WordLists

ALLOWED_TARGETS = "wordle_rl."
KEYS = {  # of a training config
    *("model", "backend", "algorithm", "reward", "rollout", "prompt", "words", "rules", "sampling"),
    *("trainer", "logger", "optim", "name", "seed", "output_dir", "resume"),
}


class ConfigError(ValueError):
    """A setting is wrong; the message is one line that names it and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that a training run is built from; nothing heavy has been loaded yet."""

    config: dict[str, Any]  # resolved
    words: WordLists
    splits: Splits
    knowledge: Knowledge
    model: ModelSettings
    backend: LightningSettings
    optim: Optim
    trainer: TrainerSettings
    logger: LoggerSettings
    lab: Lab
    validation: tuple[str, ...]  # secrets that choose the checkpoint
    test: tuple[str, ...]  # secrets of the report

    @property
    def greedy(self) -> Sampling:
        """How validation and report play."""
        return dataclasses.replace(self.lab.sampling, temperature=0.0)


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """The config as plain values. Raises ConfigError for a value that is missing."""
    try:
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(" ".join(str(error).split())) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def component(key: str, node: Mapping[str, Any], **injected: Any) -> Any:
    """The object of a config node; injected values fill the fields of those names, if any.

    Raises ConfigError naming the key for a class that is not allowed and for unknown settings.
    """
    settings = dict(node)
    cls = _class(key, settings.pop("_target_", None))
    names = [f.name for f in dataclasses.fields(cls)]
    if unknown := sorted(set(settings) - set(names)):
        raise ConfigError(f"{key} has no setting {', '.join(unknown)}; it has {', '.join(names)}")
    hints = get_type_hints(cls)
    for name, value in settings.items():
        if not _fits(value, hints[name]):
            wanted = _type_name(hints[name])
            raise ConfigError(f"{key}.{name} must be {wanted}, not {value!r}")
    filled = {name: value for name, value in injected.items() if name in names}
    try:
        return cls(**settings, **filled)
    except TypeError as error:
        raise ConfigError(f"{key}: {error}") from None


def _fits(value: Any, hint: Any) -> bool:
    """Whether a config value is of an annotated type; what YAML cannot express always is."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (list, dict):
        return isinstance(value, origin)
    if hint in (bool, str, NoneType):
        return isinstance(value, hint)
    return True


def _type_name(hint: Any) -> str:
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_type_name(argument) for argument in arguments)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(hint, "null" if hint is NoneType else str(hint))


def _class(key: str, target: Any) -> type:
    module, _, name = str(target).rpartition(".")
    if not module.startswith(ALLOWED_TARGETS):
        raise ConfigError(f"{key}._target_ must be a class of {ALLOWED_TARGETS}*, not {target!r}")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        found = None
    own = isinstance(found, type) and found.__module__.startswith(ALLOWED_TARGETS)
    if not isinstance(found, type) or not own or not dataclasses.is_dataclass(found):
        raise ConfigError(f"{key}._target_: {target} is not a component of this package")
    return found


def reward_set(node: Mapping[str, Any], words: WordLists, knowledge: Knowledge) -> RewardSet:
    """A RewardSet: `components` maps names to reward nodes, each with its weight."""
    parts, weights = {}, {}
    for name, given in (node.get("components") or {}).items():
        if given is None:
            continue  # switched off by an override
        settings = dict(given)
        weights[name] = settings.pop("weight", 1.0)
        key = f"reward.components.{name}"
        parts[name] = component(key, settings, words=words, knowledge=knowledge)
    head = {k: v for k, v in node.items() if k != "components"}
    return component("reward", {**head, "components": parts, "weights": weights})


def model_settings(node: Mapping[str, Any]) -> ModelSettings:
    settings = dict(node)
    lora = settings.pop("lora", None)
    if lora is not None:
        target = {"_target_": f"{LoraSettings.__module__}.{LoraSettings.__name__}"}
        lora = component("model.lora", {**target, **lora})
    return component("model", {**settings, "lora": lora})


def style_of(config: Mapping[str, Any]) -> PromptStyle:
    return component("prompt", config["prompt"])


PLAYERS = {
    "random_consistent": lambda k: RandomConsistent(k, "answers"),
    "random_consistent_allowed": lambda k: RandomConsistent(k, "allowed"),
    "entropy": GreedyEntropy,
}


def teacher(name: str | None, knowledge: Knowledge) -> Player | None:
    """The scripted player that an algorithm imitates."""
    if name is None:
        return None
    if name not in PLAYERS:
        raise ConfigError(f"algorithm.player must be one of {', '.join(PLAYERS)}, not {name!r}")
    return PLAYERS[name](knowledge)


def experiment(config: dict[str, Any]) -> Experiment:
    """Build and check everything that needs no model. Raises ValueError in one line."""
    if unknown := sorted(set(config) - KEYS):
        raise ConfigError(
            f"there is no setting {', '.join(unknown)}; there are {', '.join(sorted(KEYS))}"
        )
    settings: WordSettings = component("words", config["words"])
    words, splits = settings.load()
    knowledge = Knowledge(words, feedback_table(words))
    algorithm: Algorithm = component("algorithm", config["algorithm"])
    rollout: RolloutSettings = component("rollout", config["rollout"])
    algorithm.check(rollout.num_generations)
    sampling: Sampling = component("sampling", config["sampling"])
    if algorithm.player is None:
        sampling.check_trainable()
    rules: Rules = component("rules", config["rules"])
    everything = settings.protocol == "all"
    lab = Lab(
        words=words,
        rules=rules,
        style=style_of(config),
        sampling=sampling,
        rewards=reward_set(config["reward"], words, knowledge),
        algorithm=algorithm,
        teacher=teacher(algorithm.player, knowledge),
        secrets=words.answers if everything else splits.train,
        groups=rollout.groups,
        num_generations=rollout.num_generations,
        credit=rollout.credit,
        discount=rollout.discount,
        seed=_whole("seed", config["seed"]),
    )
    return Experiment(
        config=config,
        words=words,
        splits=splits,
        knowledge=knowledge,
        model=model_settings(config["model"]),
        backend=component("backend", config["backend"]),
        optim=component("optim", config["optim"]),
        trainer=component("trainer", config["trainer"]),
        logger=component("logger", config["logger"]),
        lab=lab,
        validation=splits.val,
        test=words.answers if everything else splits.test,
    )


def _whole(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{key} must be a whole number, 0 or more, not {value!r}")
    return value
