"""Builds an Experiment from a composed config; nothing below commands/ knows one.

Each part checks its own settings. This file opens the file of data= and checks that the parts of a
run fit together (checks.py). Nothing here imports torch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from wordle_rl.algorithms.base import START, Algorithm
from wordle_rl.commands.checks import (
    check_dialogues,
    check_recipe,
    check_step,
    check_thoughts,
    refuse,
)
from wordle_rl.commands.resume import check_match, check_secrets, record_reference
from wordle_rl.data.load import DataSettings, TrainingData, load_data
from wordle_rl.evaluation.regret import Regret, best_player
from wordle_rl.game.feedback_table import cache_folder, feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import (
    EntropyConsistent,
    GreedyEntropy,
    Mistakes,
    Opening,
    Player,
    RandomConsistent,
    Teacher,
)
from wordle_rl.game.rules import Rules
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import (
    BackendSettings,
    LightningSettings,
    MlxSettings,
    ModelSettings,
    ServerSettings,
)
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import build_reward_set
from wordle_rl.rollouts.history import History, HistorySettings
from wordle_rl.rollouts.settings import Recipe, RolloutSettings
from wordle_rl.rollouts.teacher import TeacherSettings
from wordle_rl.runs.config import find_model
from wordle_rl.runs.errors import advice
from wordle_rl.runs.instantiate import (
    ConfigError,
    Seed,
    check_choice,
    check_type,
    find_own,
    instantiate,
    option_of,
)
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.curricula import Curriculum
from wordle_rl.training.experiment import Experiment, LoggerSettings, TrainerSettings
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits, WordSettings

KEYS = {  # the keys of a training config
    *("model", "backend", "algorithm", "reward", "rollout", "prompt", "words", "rules", "sampling"),
    *("curriculum", "history", "data", "trainer", "logger", "callbacks", "optim", "vllm"),
    *("name", "seed", "output_dir", "resume"),
    *("init_from", "init_checkpoint", "allow_mismatch"),
}
_LONE_KEYS = {"name": str, "output_dir": str, "seed": Seed, "allow_mismatch": bool}  # in no group
PLAYERS: dict[str, Callable[[Knowledge], Player]] = {  # players for algorithms and histories
    "random_consistent": lambda k: RandomConsistent(k, "answers"),
    "random_consistent_allowed": lambda k: RandomConsistent(k, "allowed"),
    "entropy": best_player,
    "entropy_consistent": lambda k: EntropyConsistent(k, best_player(k)),
    "entropy_allowed": lambda k: GreedyEntropy(k, opener=None, candidates="allowed"),
}


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """Turn the config into plain values. Raises ConfigError for a missing value."""
    try:
        config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        if error.full_key == "model.path":
            line = "model must be given: model=<option, hub name or folder>, see --help"
            raise ConfigError(line) from None
        raise ConfigError(f"{error.full_key} must be given: {error.full_key}=...") from None
    except OmegaConfBaseException as error:
        line = str(error).splitlines()[0].rpartition(" raised while resolving interpolation: ")[2]
        raise ConfigError(f"{error.full_key}: {line}") from None
    assert isinstance(config, dict)
    config.pop("num_generations", None)  # rollout has it now
    return {str(key): value for key, value in config.items()}


def check_keys(config: Mapping[str, Any], keys: set[str]) -> None:
    """Raise ConfigError unless a config has exactly these keys."""
    check_package(config)
    unknown, missing = ", ".join(sorted(set(config) - keys)), ", ".join(sorted(keys - set(config)))
    refuse(unknown, f"there is no setting {unknown}; the settings are {', '.join(sorted(keys))}")
    refuse(missing, f"{missing} must be given: the config needs every part")


def check_package(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a file of experiment= or sweep= that says not where it belongs."""
    for group, package in (("experiment", "_global_"), ("sweep", "hydra.sweeper")):
        refuse(
            group in config,
            f"the first line of the file of {group}= must be # @package {package}, without a byte "
            "order mark (BOM) before it",
        )


def build_experiment(config: dict[str, Any]) -> Experiment:
    """Build and check everything that needs no model. Raises ValueError in one line."""
    check_keys(config, KEYS)
    for name, kind in _LONE_KEYS.items():
        check_type(name, config[name], kind)
    fields = {"only_scores": False, "any_base": config["allow_mismatch"]}
    model: ModelSettings = instantiate("model", config["model"], ModelSettings, **fields)
    backend = build_backend_settings(config["backend"], model)
    settings: WordSettings = instantiate("words", config["words"], WordSettings)
    words, splits = settings.load()
    trainer: TrainerSettings = instantiate("trainer", config["trainer"], TrainerSettings)
    recipe, data = _build_recipe(config, settings, words, splits, model, backend, trainer)
    reference = _build_reference(config, recipe.algorithm, model)
    if reference is not None:  # latest may be another run when this one is resumed
        config = config | {"algorithm": config["algorithm"] | {"reference": reference.path}}
    for location in (source.location for source in (model, reference) if source):
        check_secrets(settings.protocol, words, splits, location)
        if not config["allow_mismatch"]:
            check_match(location, recipe.style, ("rollout.form", recipe.rollout.form), words)
    check_recipe(recipe, splits, trainer)
    knowledge = recipe.knowledge
    assert knowledge is not None
    return Experiment(
        config=config,
        words=words,
        splits=splits,
        knowledge=knowledge,
        regret=Regret(knowledge, recipe.rules.max_turns),
        model=model,
        backend=backend,
        optim=instantiate("optim", config["optim"], Optim),
        trainer=_count_steps(trainer, recipe, data),
        logger=_build_logger(config["logger"]),
        callbacks=_list_callbacks(config["callbacks"], backend),
        recipe=recipe,
        curriculum=_build_curriculum(config, recipe, knowledge),
        servers=_build_servers(config["vllm"], recipe.rollout, model, backend),
        data=data,
        reference=reference,
        reference_record=record_reference(reference.location) if reference else None,
        validation=splits.val[: trainer.validation_games],  # in hash order, so a fair sample
        test=words.answers if settings.protocol == "all" else splits.test,
    )


def _count_steps(
    trainer: TrainerSettings, recipe: Recipe, data: TrainingData | None
) -> TrainerSettings:
    """With the steps of trainer.epochs: of the rows of data=, or else of the training secrets."""
    if trainer.epochs is None:
        return trainer
    count = len(recipe.secrets) if data is None else data.rows
    steps = math.ceil(trainer.epochs * count / recipe.rollout.groups)
    return replace(trainer, steps=max(1, steps))


def _build_logger(node: Mapping[str, Any]) -> LoggerSettings:
    """The loggers, whose libraries must be there."""
    logger: LoggerSettings = instantiate("logger", node, LoggerSettings)
    for library in ("tensorboard", "wandb"):
        refuse(getattr(logger, library) and find_spec(library) is None, advice(library))
    return logger


def _list_callbacks(node: Any, backend: BackendSettings) -> dict[str, Any]:
    """The nodes of callbacks=, by name, which the backend makes objects of. null leaves one out."""
    by_name = dict(enumerate(node)) if isinstance(node, list) else node
    refuse(not isinstance(by_name, dict), f"callbacks must be nodes with names, not {node!r}")
    nodes = {str(name): callback for name, callback in by_name.items() if callback is not None}
    for name, callback in nodes.items():
        wrong = not isinstance(callback, dict) or "_target_" not in callback
        refuse(wrong, f"callbacks.{name} must have a _target_, the class of the callback")
    refuse(
        nodes and backend.name != LightningSettings.name,
        f"callbacks={','.join(nodes)} needs backend=lightning, not {backend.name}: leave it out",
    )
    return nodes


def _build_recipe(
    config: dict[str, Any],
    settings: WordSettings,
    words: WordLists,
    splits: Splits,
    model: ModelSettings,
    backend: BackendSettings,
    trainer: TrainerSettings,
) -> tuple[Recipe, TrainingData | None]:
    """What a step needs, and the rows of data= that it trains on."""
    knowledge = Knowledge(words, feedback_table(words))
    rules: Rules = instantiate("rules", config["rules"], Rules)
    rollout: RolloutSettings = instantiate("rollout", config["rollout"], RolloutSettings)
    history = build_history(config["history"], knowledge, rules)
    sampling: Sampling = instantiate("sampling", config["sampling"], Sampling)
    # It knows how long a rollout can be, and who draws its tokens.
    answers = rollout.answers(rules, history.least if history else 0)
    algorithm: Algorithm = instantiate(
        "algorithm",
        config["algorithm"],
        Algorithm,
        budget=sampling.max_tokens * answers,
        drawn_elsewhere=rollout.engine != "own" or trainer.lag > 0,
    )
    algorithm.check(rollout.num_generations)
    rollout.check(algorithm)
    if algorithm.imitates is None:
        sampling.check_trainable()
    check_step(algorithm, rollout, backend, sampling, model)
    data = _build_data(config, words, splits, rules, algorithm)
    if data is not None and data.dialogues is not None:
        check_dialogues(data.name, algorithm, rollout)
    elif data is not None:
        refuse(history, "history must be none with data=<file>, whose rows say where games begin")
    style: PromptStyle = instantiate("prompt", config["prompt"], PromptStyle, game=rules)
    recipe = Recipe(
        words=words,
        rules=rules,
        style=style,
        sampling=sampling,
        algorithm=algorithm,
        rewards=build_reward_set(config["reward"], knowledge, rollout.form),
        teacher=None if data and data.dialogues else build_teacher(algorithm, knowledge),
        secrets=data.secrets if data and data.states else settings.training_secrets(words, splits),
        allowed_secrets=settings.allowed_secrets(words, splits),
        allowed_share=settings.allowed_share,
        rollout=rollout,
        history=history,
        states=data.states if data else None,
        dialogues=data.dialogues if data else None,
        agreement=trainer.agreement,
        knowledge=knowledge,
        seed=config["seed"],
    )
    return recipe, data


# -- parts ----------------------------------------------------------------------------------------


def build_backend_settings(node: Any, model: ModelSettings) -> BackendSettings:
    """Build the backend's settings. Raises ConfigError if the model needs another backend."""
    kinds = {kind.name: kind.__name__ for kind in (LightningSettings, MlxSettings)}
    target = node.get("_target_") if isinstance(node, Mapping) else None
    # Check this first, because such a model brings settings that fit no other backend.
    refuse(
        model.backend is not None and not str(target).endswith(f".{kinds[model.backend]}"),
        f"model={model.name} needs backend={model.backend}: leave backend= out to get it",
    )
    backend = instantiate("backend", node, BackendSettings)
    refuse(
        model.quantize is not None and backend.name == MlxSettings.name,
        f"model.quantize must be null with backend=mlx, not {model.quantize}: give the folder of a "
        "model that mlx_lm.convert -q quantised",
    )
    return backend


def build_history(node: Any, knowledge: Knowledge, rules: Rules) -> History | None:
    """Build where training games begin. None means the empty board."""
    settings: HistorySettings = instantiate("history", node, HistorySettings)
    make = choose_player("history.player", settings.player)
    refuse(
        settings.most >= rules.max_turns,
        f"history.most must be below rules.max_turns={rules.max_turns}, so that a turn is left to "
        f"play, not {settings.most}",
    )
    if settings.most == 0:
        return None
    refuse(
        rules.hard_mode and settings.player.startswith("entropy"),
        f"history.player={settings.player} ignores clues, which rules.hard_mode=true forbids: "
        "choose another player",
    )
    player, stand_in = make(knowledge), RandomConsistent(knowledge, "allowed")
    if settings.opener is not None:
        player = Opening(check_opener("history.opener", settings.opener, knowledge.words), player)
    return History(least=settings.least, most=settings.most, player=player, stand_in=stand_in)


def check_opener(key: str, word: str, words: WordLists) -> str:
    """A first guess in lower case. Raises ConfigError unless it is an allowed word."""
    refuse(word.lower() not in words.allowed_set, f"{key} must be an allowed word, not {word}")
    return word.lower()


def choose_player(
    key: str, name: str, players: Mapping[str, Callable[[Knowledge], Player]] = PLAYERS
) -> Callable[[Knowledge], Player]:
    """What makes the scripted player of a name: one of players, or the user's own class."""
    if (cls := find_own(key, name)) is None:
        check_choice(key, name, tuple(players))
        return players[name]
    refuse(not (isinstance(cls, type) and issubclass(cls, Player)), f"{key}={name} is no Player")
    return cls


def build_teacher(algorithm: Algorithm, knowledge: Knowledge) -> TeacherSettings | None:
    """Build the teacher whose games the algorithm imitates, None if it imitates nobody."""
    imitation = algorithm.imitates
    if imitation is None:
        return None
    player = choose_player("algorithm.player", imitation.player)(knowledge)
    refuse(
        imitation.every_guess and not isinstance(player, Teacher),
        "algorithm.targets=distribution needs a player that chooses among guesses, "
        f"random_consistent or random_consistent_allowed, not {imitation.player}",
    )
    pool: Literal["answers", "allowed"]
    pool = "allowed" if imitation.player.endswith("_allowed") else "answers"
    return TeacherSettings(
        player=player,
        mistakes=Mistakes(knowledge, pool) if imitation.slips else None,
        slips=imitation.slips,
        distribution=imitation.every_guess,
        guessable=knowledge.words.allowed if imitation.own_share else None,
        own_share=imitation.own_share,
    )


def _build_reference(
    config: Mapping[str, Any], algorithm: Algorithm, model: ModelSettings
) -> ModelSettings | None:
    """The settings of the model that algorithm.reference= names, None for the policy's start."""
    if (name := algorithm.reference) == START:
        return None
    refuse(
        not algorithm.needs.reference,
        f"algorithm.reference={name} needs algorithm.beta above 0, or it would change nothing",
    )
    path = find_model("algorithm.reference", name, ROOT / config["output_dir"])
    room = model.max_context
    try:
        return ModelSettings(
            name=name,
            path=path,
            only_scores=True,
            learning_rate=0.0,
            max_tokens=1,
            max_context=room,
        )
    except ValueError as error:
        raise ConfigError(str(error).replace("model.path", "algorithm.reference")) from None


def _build_servers(
    node: Any, rollout: RolloutSettings, model: ModelSettings, backend: BackendSettings
) -> ServerSettings | None:
    """Build the settings of the servers that play. None unless rollout.engine=vllm."""
    servers: ServerSettings = instantiate("vllm", node, ServerSettings)
    if rollout.engine == "own":
        return None
    refuse(
        backend.name != LightningSettings.name,
        f"rollout.engine=vllm needs backend=lightning, not {backend.name}",
    )
    refuse(
        model.lora is None and not model.is_adapter,
        "rollout.engine=vllm needs an adapter, which the servers load after each update: set "
        "model.lora={rank: 16}",
    )
    refuse(
        backend.processes > 1,
        "rollout.engine=vllm trains in one process, for any number of servers in vllm.urls: "
        f"backend.devices must be 1, and torchrun left out, not {backend.processes} processes",
    )
    return servers


def _build_curriculum(
    config: Mapping[str, Any], recipe: Recipe, knowledge: Knowledge
) -> Curriculum:
    """Build the curriculum, which leads to the rewards of reward=."""
    node, where = config["curriculum"], "curriculum.first"
    if isinstance(node, Mapping) and "first" in node:
        first = build_reward_set(node["first"], knowledge, recipe.rollout.form, where)
        check_thoughts(first, recipe.style, where)
        node = {**node, "first": first}
    # With data=, an epoch has a group for each row.
    secrets = (
        recipe.secrets if recipe.states is None else tuple(state.secret for state in recipe.states)
    )
    curriculum = instantiate(
        "curriculum",
        node,
        Curriculum,
        rewards=recipe.rewards,
        secrets=secrets,
        groups=recipe.rollout.groups,
    )
    refuse(
        recipe.algorithm.imitates is not None and type(curriculum) is not Curriculum,
        "curriculum must be none with an algorithm that imitates a player, because its games have "
        f"no rewards, not {option_of(curriculum)}",
    )
    refuse(
        curriculum.needs_whole_games and not recipe.rollout.finishes,
        f"curriculum={option_of(curriculum)} depends on how games end, but rollout="
        f"{recipe.rollout.kind} leaves them earlier: use rollout=game or rollout=best_of",
    )
    curriculum.plan()  # raises now if its first rewards are wrong
    return curriculum


def _build_data(
    config: Mapping[str, Any], words: WordLists, splits: Splits, rules: Rules, algorithm: Algorithm
) -> TrainingData | None:
    """Open and check the file of data=, None without one. Raises ValueError in one line."""
    settings: DataSettings = instantiate("data", config["data"], DataSettings)
    if settings.path is None:
        return None
    node, file = config["words"], Path(settings.path).expanduser()
    if file.suffix and not file.is_file():
        raise ConfigError(f"data={file}: no such file")
    refuse(
        node.get("allowed_share") or node.get("train") is not None,
        f"data={file} says which secrets are played, so words.allowed_share must be 0 and "
        "words.train null: add experiment=none",
    )
    held_out = () if node.get("protocol") == "all" else (*splits.val, *splits.test)
    return load_data(
        settings,
        words,
        rules,
        held_out,
        imitates=algorithm.imitates is not None,
        cache=cache_folder() / "datasets",
    )
