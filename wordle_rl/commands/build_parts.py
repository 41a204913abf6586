"""Builds the parts of a run from config nodes: rewards, model, players, history, curriculum.

Each part checks its own settings. This file checks that two parts fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import (
    GreedyEntropy,
    Mistakes,
    Player,
    RandomConsistent,
    Teacher,
    TopOpeners,
)
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.servers import ServerSettings
from wordle_rl.policy.settings import (
    BackendSettings,
    LightningSettings,
    LoraSettings,
    MlxSettings,
    ModelSettings,
)
from wordle_rl.prompts.reasoning import Reasoning
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.build import build_reward_set
from wordle_rl.rewards.format import Format
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.base import Recipe, RolloutKind
from wordle_rl.rollouts.history import History, HistorySettings
from wordle_rl.rollouts.lesson import TeacherSettings
from wordle_rl.runs.instantiate import ConfigError, instantiate, option_of
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.curricula.none import NoCurriculum


def check_thoughts_asked(rewards: RewardSet, style: PromptStyle, where: str = "reward") -> None:
    """Raise ConfigError if rewards want think blocks that the prompt does not ask for."""
    for name, part in rewards.components.items():
        if isinstance(part, Format) and part.think and not style.think:
            raise ConfigError(
                f"{where}.components.{name}.think=true needs a prompt that asks for thoughts: set "
                "prompt.think=true"
            )


def build_model_settings(node: Any) -> ModelSettings:
    if not isinstance(node, Mapping) or not isinstance(node.get("lora"), Mapping):
        return instantiate("model", node, ModelSettings)
    target = {"_target_": f"{LoraSettings.__module__}.{LoraSettings.__name__}"}
    lora = instantiate("model.lora", {**target, **node["lora"]}, LoraSettings)
    return instantiate("model", {**node, "lora": lora}, ModelSettings)


def build_backend_settings(node: Any, model: ModelSettings) -> BackendSettings:
    """Build the backend's settings. Raises ConfigError if the model needs another backend."""
    kinds = {kind.name: kind.__name__ for kind in (LightningSettings, MlxSettings)}
    target = node.get("_target_") if isinstance(node, Mapping) else None
    # Check this first, because such a model brings settings that fit no other backend.
    if model.backend is not None and not str(target).endswith(f".{kinds[model.backend]}"):
        raise ConfigError(
            f"model={model.name} needs backend={model.backend}: leave backend= out to get it"
        )
    backend = instantiate("backend", node, BackendSettings)
    if model.quantize is not None and backend.name == MlxSettings.name:
        raise ConfigError(
            f"model.quantize must be null with backend=mlx, not {model.quantize}: give the folder "
            "of a model that mlx_lm.convert -q quantised"
        )
    return backend


def build_algorithm(
    node: Any, rollout: RolloutKind, rules: Rules, sampling: Sampling, earlier: History | None
) -> Algorithm:
    """Build the algorithm, which knows how long a rollout can be and who draws its tokens."""
    answers = rollout.answers(rules, earlier.least if earlier else 0)
    return instantiate(
        "algorithm", node, Algorithm,
        budget=sampling.max_tokens * answers, drawn_elsewhere=rollout.engine != "own",
    )  # fmt: skip


def build_servers(
    node: Any, rollout: RolloutKind, model: ModelSettings, backend: BackendSettings
) -> ServerSettings | None:
    """Build the settings of the servers that play. None unless rollout.engine=vllm."""
    servers: ServerSettings = instantiate("vllm", node, ServerSettings)
    if rollout.engine == "own":
        return None
    if backend.name != LightningSettings.name:
        raise ConfigError(f"rollout.engine=vllm needs backend=lightning, not {backend.name}")
    if model.lora is None and not model.is_adapter:
        raise ConfigError(
            "rollout.engine=vllm needs an adapter, which the servers load after each update: set "
            "model.lora={rank: 16}"
        )
    if backend.processes > 1:
        raise ConfigError(
            "rollout.engine=vllm trains in one process, for any number of servers in vllm.urls: "
            f"backend.devices must be 1, and torchrun left out, not {backend.processes} processes"
        )
    return servers


def build_style(config: Mapping[str, Any], rules: Rules) -> PromptStyle:
    """Build the prompt style, which explains these rules."""
    return instantiate("prompt", config["prompt"], PromptStyle, game=rules)


PLAYERS: dict[str, Callable[[Knowledge], Player]] = {  # players for algorithms and histories
    "random_consistent": lambda k: RandomConsistent(k, "answers"),
    "random_consistent_allowed": lambda k: RandomConsistent(k, "allowed"),
    "entropy": GreedyEntropy,
    "entropy_allowed": lambda k: GreedyEntropy(k, opener=None, candidates="allowed"),
}


def build_teacher(
    algorithm: Algorithm, knowledge: Knowledge, style: PromptStyle
) -> TeacherSettings | None:
    """Build the teacher whose games the algorithm imitates, None if it imitates nobody."""
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
            f"algorithm.targets=distribution needs a player that chooses among guesses, "
            f"random_consistent or random_consistent_allowed, not {wanted.player}"
        )
    pool: Literal["answers", "allowed"] = (
        "allowed" if wanted.player.endswith("_allowed") else "answers"
    )
    length = wanted.reasoning
    if length != "none" and not style.think:
        raise ConfigError(
            f"algorithm.reasoning={length} needs a prompt that asks for it: set prompt.think=true"
        )
    return TeacherSettings(
        player=player,
        mistakes=Mistakes(knowledge, pool) if wanted.slips else None,
        slips=wanted.slips,
        careless=wanted.careless,
        distribution=wanted.choices,
        reasoning=None if length == "none" else Reasoning(knowledge, length),
    )


def build_curriculum(config: Mapping[str, Any], recipe: Recipe, knowledge: Knowledge) -> Curriculum:
    """Build the curriculum, which leads to the rewards of reward=."""
    node = config["curriculum"]
    if isinstance(node, Mapping) and "first" in node:
        first = build_reward_set(
            node["first"], recipe.words, knowledge, recipe.rollout.form, "curriculum.first"
        )
        check_thoughts_asked(first, recipe.style, "curriculum.first")
        node = {**node, "first": first}
    # With data=, an epoch has a group for each row.
    secrets = recipe.secrets if recipe.states is None else tuple(recipe.states.secrets)
    chosen = instantiate(
        "curriculum", node, Curriculum,
        rewards=recipe.rewards, secrets=secrets, groups=recipe.rollout.groups,
    )  # fmt: skip
    if recipe.algorithm.imitates is not None and not isinstance(chosen, NoCurriculum):
        raise ConfigError(
            "curriculum must be none with an algorithm that imitates a player, because its games "
            f"have no rewards, not {option_of(chosen)}"
        )
    if chosen.needs_whole_games and not recipe.rollout.finishes:
        raise ConfigError(
            f"curriculum={option_of(chosen)} depends on how games end, but "
            f"rollout={recipe.rollout.name} leaves them earlier: use rollout=game or "
            "rollout=best_of"
        )
    chosen.plan()  # raises now if its first rewards are wrong
    return chosen


def build_history(node: Any, knowledge: Knowledge, rules: Rules) -> History | None:
    """Build where training games begin. None means the empty board."""
    settings: HistorySettings = instantiate("history", node, HistorySettings)
    players = {**PLAYERS, "top_openers": TopOpeners}
    if settings.player not in players:
        raise ConfigError(
            f"history.player must be one of {', '.join(players)}, not {settings.player!r}"
        )
    if settings.most >= rules.max_turns:
        raise ConfigError(
            f"history.most must be below rules.max_turns={rules.max_turns}, so that a turn is left "
            f"to play, not {settings.most}"
        )
    if settings.most == 0:
        return None
    if rules.hard_mode and settings.player.startswith("entropy"):
        raise ConfigError(
            f"history.player={settings.player} ignores clues, which rules.hard_mode=true forbids: "
            "choose another player"
        )
    player = players[settings.player](knowledge)
    return History(
        least=settings.least,
        most=settings.most,
        player=player,
        stand_in=RandomConsistent(knowledge, "allowed"),
    )
