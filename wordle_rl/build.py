"""From a composed config to objects: the one place that knows both.

Checks what must hold between parts; what one part may hold, it checks itself. Nothing here imports
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.earlier_run import check_match, check_secrets
from wordle_rl.evaluation.regret import Regret
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import Player, Teacher
from wordle_rl.game.players.greedy_entropy import GreedyEntropy
from wordle_rl.game.players.mistakes import Mistakes
from wordle_rl.game.players.random_consistent import RandomConsistent
from wordle_rl.game.players.top_openers import TopOpeners
from wordle_rl.game.rules import Rules
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import (
    BackendSettings,
    LightningSettings,
    LoraSettings,
    MlxSettings,
    ModelSettings,
)
from wordle_rl.prompts.reasoning import Reasoning
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.base import Reward
from wordle_rl.rewards.scoring import MOST_WEIGHT, RewardSet
from wordle_rl.rollouts.base import Recipe, RolloutKind
from wordle_rl.rollouts.history import History, HistorySettings
from wordle_rl.rollouts.lesson import TeacherSettings
from wordle_rl.runs.checks import check_seed
from wordle_rl.runs.instantiate import ConfigError, check_range, check_type, instantiate, option_of
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.curricula.none import NoCurriculum
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.settings import LoggerSettings, TrainerSettings
from wordle_rl.words.lists import WordLists
from wordle_rl.words.settings import WordSettings

KEYS = {  # of a training config
    *("model", "backend", "algorithm", "reward", "rollout", "prompt", "words", "rules", "sampling"),
    *("curriculum", "history", "trainer", "logger", "optim"),
    *("name", "seed", "output_dir", "resume", "restart"),
    *("init_from", "init_checkpoint", "allow_mismatch"),
}


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """The config as plain values. Raises ConfigError for a value that is missing."""
    try:
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} must be given: {error.full_key}=...") from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {str(error).splitlines()[0]}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def check_keys(config: Mapping[str, Any], keys: set[str]) -> None:
    """Raise ConfigError unless a config has these parts and no others."""
    if unknown := sorted(set(config) - keys):
        raise ConfigError(
            f"there is no setting {', '.join(unknown)}; there are {', '.join(sorted(keys))}"
        )
    if missing := sorted(keys - set(config)):
        raise ConfigError(f"{', '.join(missing)} must be given: the config needs every part")


def build_reward_set(
    node: Any,
    words: WordLists,
    knowledge: Knowledge,
    form: str = "conversation",
    where: str = "reward",
) -> RewardSet:
    """A RewardSet: `components` maps names to reward nodes, each with its weight.

    where: the key of the node, for messages.
    """
    components = node.get("components") if isinstance(node, Mapping) else node
    if not isinstance(components, Mapping):
        raise ConfigError(f"{where}.components must be a group of rewards, not {components!r}")
    parts, weights = {}, {}
    for name, given in components.items():
        if given is None:
            continue  # switched off by an override
        key = f"{where}.components.{name}"
        settings = dict(given) if isinstance(given, Mapping) else given
        if isinstance(settings, dict):
            weights[name] = settings.pop("weight", 1.0)
            check_type(f"{key}.weight", weights[name], float)
            check_range(f"{key}.weight", weights[name], 0, MOST_WEIGHT)
        parts[name] = instantiate(
            key, settings, Reward, words=words, knowledge=knowledge, form=form
        )
    head = {k: v for k, v in node.items() if k != "components"}
    if "weights" in head:
        raise ConfigError(
            f"{where}.weights: a weight belongs to its reward, {where}.components.<name>.weight"
        )
    return instantiate(where, {**head, "components": parts, "weights": weights}, RewardSet)


def build_model_settings(node: Any) -> ModelSettings:
    if not isinstance(node, Mapping) or not isinstance(node.get("lora"), Mapping):
        return instantiate("model", node, ModelSettings)
    target = {"_target_": f"{LoraSettings.__module__}.{LoraSettings.__name__}"}
    lora = instantiate("model.lora", {**target, **node["lora"]}, LoraSettings)
    return instantiate("model", {**node, "lora": lora}, ModelSettings)


def build_backend_settings(node: Any, model: ModelSettings) -> BackendSettings:
    """Raises ConfigError when the model belongs to another backend."""
    kinds = {kind.name: kind.__name__ for kind in (LightningSettings, MlxSettings)}
    target = node.get("_target_") if isinstance(node, Mapping) else None
    # Looked at first: the settings that such a model brings fit no other backend.
    if model.backend is not None and not str(target).endswith(f".{kinds[model.backend]}"):
        raise ConfigError(
            f"model={model.name} needs backend={model.backend}, which it takes when none is named"
        )
    return instantiate("backend", node, BackendSettings)


def build_style(config: Mapping[str, Any], rules: Rules) -> PromptStyle:
    """The prompt style, which tells these rules."""
    return instantiate("prompt", config["prompt"], PromptStyle, game=rules)


PLAYERS: dict[str, Callable[[Knowledge], Player]] = {  # that algorithms and histories may name
    "random_consistent": lambda k: RandomConsistent(k, "answers"),
    "random_consistent_allowed": lambda k: RandomConsistent(k, "allowed"),
    "entropy": GreedyEntropy,
}


def build_teacher(
    algorithm: Algorithm, knowledge: Knowledge, style: PromptStyle
) -> TeacherSettings | None:
    """The games that an algorithm imitates, if it does."""
    wanted = algorithm.imitates
    if wanted is None:
        return None
    if wanted.player not in PLAYERS:
        raise ConfigError(
            f"algorithm.player must be one of {', '.join(PLAYERS)}, not {wanted.player!r}"
        )
    player = PLAYERS[wanted.player](knowledge)
    if wanted.choices and not isinstance(player, Teacher):
        raise ConfigError(
            f"algorithm.targets=distribution needs a player with a choice of guesses, "
            f"random_consistent or random_consistent_allowed, not {wanted.player}"
        )
    length = wanted.reasoning
    if length != "none" and not style.think:
        raise ConfigError(
            f"algorithm.reasoning={length} needs a prompt that asks for it: set prompt.think=true"
        )
    return TeacherSettings(
        player=player,
        mistakes=Mistakes(knowledge) if wanted.slips else None,
        slips=wanted.slips,
        distribution=wanted.choices,
        reasoning=None if length == "none" else Reasoning(knowledge, length),
    )


def build_curriculum(
    config: Mapping[str, Any], recipe: Recipe, knowledge: Knowledge, rollout: RolloutKind
) -> Curriculum:
    """The curriculum, which leads to the rewards of reward=."""
    node = config["curriculum"]
    if isinstance(node, Mapping) and "first" in node:
        first = build_reward_set(
            node["first"], recipe.words, knowledge, recipe.form, "curriculum.first"
        )
        node = {**node, "first": first}
    chosen = instantiate(
        "curriculum", node, Curriculum,
        rewards=recipe.rewards, secrets=recipe.secrets, groups=recipe.groups,
    )  # fmt: skip
    if recipe.teacher is not None and not isinstance(chosen, NoCurriculum):
        raise ConfigError(
            "curriculum must be none with an algorithm that imitates a player, as its games are "
            f"not judged, not {option_of(chosen)}"
        )
    if chosen.needs_whole_games and not rollout.finishes:
        raise ConfigError(
            f"curriculum={option_of(chosen)} goes by how games end, and with "
            f"rollout={rollout.name} they are left before: use rollout=game or rollout=best_of"
        )
    chosen.plan()  # what is wrong with its first rewards is told now
    return chosen


def build_history(node: Any, knowledge: Knowledge, rules: Rules) -> History | None:
    """Where training games begin; None for the empty board."""
    settings: HistorySettings = instantiate("history", node, HistorySettings)
    players = {**PLAYERS, "top_openers": TopOpeners}
    if settings.player not in players:
        raise ConfigError(
            f"history.player must be one of {', '.join(players)}, not {settings.player!r}"
        )
    if settings.most >= rules.max_turns:
        raise ConfigError(
            f"history.most must be below rules.max_turns={rules.max_turns}, so that there is a "
            f"turn left to play, not {settings.most}"
        )
    if settings.most == 0:
        return None
    if rules.hard_mode and settings.player == "entropy":
        raise ConfigError(
            "history.player=entropy ignores clues, which rules.hard_mode=true forbids: choose "
            "another player"
        )
    player = players[settings.player](knowledge)
    return History(
        least=settings.least,
        most=settings.most,
        player=player,
        stand_in=RandomConsistent(knowledge, "allowed"),
    )


def build_experiment(config: dict[str, Any]) -> Experiment:
    """Build and check everything that needs no model. Raises ValueError in one line."""
    check_keys(config, KEYS)
    for name in ("name", "output_dir"):
        check_type(name, config[name], str)
    check_type("seed", config["seed"], int)
    check_seed("seed", config["seed"])
    check_type("allow_mismatch", config["allow_mismatch"], bool)
    settings: WordSettings = instantiate("words", config["words"], WordSettings)
    words, splits = settings.load()
    knowledge = Knowledge(words, feedback_table(words))
    rules: Rules = instantiate("rules", config["rules"], Rules)
    rollout: RolloutKind = instantiate("rollout", config["rollout"], RolloutKind)
    earlier = build_history(config["history"], knowledge, rules)
    sampling: Sampling = instantiate("sampling", config["sampling"], Sampling)
    algorithm: Algorithm = instantiate(
        "algorithm", config["algorithm"], Algorithm,
        budget=sampling.max_tokens * rollout.answers(rules, earlier.least if earlier else 0),
    )  # fmt: skip
    model = build_model_settings(config["model"])
    backend = build_backend_settings(config["backend"], model)
    _check_together(algorithm, rollout, backend, sampling, model)
    if len(splits.val) < 2:
        raise ConfigError("words.val must hold out 2 secrets or more to choose a checkpoint by")
    check_secrets(settings.protocol, splits, model.location)
    style = build_style(config, rules)
    if not config["allow_mismatch"]:
        check_match(model.location, style, ("rollout.form", rollout.form), words)
    everything = settings.protocol == "all"
    recipe = Recipe(
        words=words,
        rules=rules,
        style=style,
        sampling=sampling,
        rewards=build_reward_set(config["reward"], words, knowledge, rollout.form),
        algorithm=algorithm,
        teacher=build_teacher(algorithm, knowledge, style),
        secrets=words.answers if everything else splits.train[: settings.train],
        groups=rollout.groups,
        num_generations=rollout.num_generations,
        play=rollout.play,
        form=rollout.form,
        history=earlier,
        credit=rollout.credit,
        discount=rollout.discount,
        seed=config["seed"],
    )
    trainer: TrainerSettings = instantiate("trainer", config["trainer"], TrainerSettings)
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
        curriculum=build_curriculum(config, recipe, knowledge, rollout),
        validation=splits.val,
        test=words.answers if everything else splits.test,
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
            f"algorithm.minibatches must be at most rollout.groups={rollout.groups}, whose groups "
            f"are not split, not {algorithm.minibatches}"
        )
    if rollout.groups % backend.devices:
        raise ConfigError(
            f"rollout.groups must be a multiple of backend.devices, so that each of the "
            f"{backend.devices} processes has as many groups, not {rollout.groups}"
        )
    if sampling.max_tokens >= model.max_context:
        raise ConfigError(
            f"sampling.max_tokens must be below model.max_context={model.max_context}, which holds "
            f"a whole game, not {sampling.max_tokens}"
        )
