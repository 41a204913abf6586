"""From the nodes of a config to the parts of a run: rewards, model, players, history, curriculum.

What one part may hold, it checks itself. What must hold between two parts is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import Player, Teacher
from wordle_rl.game.players.greedy_entropy import GreedyEntropy
from wordle_rl.game.players.mistakes import Mistakes
from wordle_rl.game.players.random_consistent import RandomConsistent
from wordle_rl.game.players.top_openers import TopOpeners
from wordle_rl.game.rules import Rules
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
from wordle_rl.rollouts.base import Recipe
from wordle_rl.rollouts.history import History, HistorySettings
from wordle_rl.rollouts.lesson import TeacherSettings
from wordle_rl.runs.instantiate import ConfigError, check_range, check_type, instantiate, option_of
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.curricula.none import NoCurriculum
from wordle_rl.words.lists import WordLists


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


def build_curriculum(config: Mapping[str, Any], recipe: Recipe, knowledge: Knowledge) -> Curriculum:
    """The curriculum, which leads to the rewards of reward=."""
    node = config["curriculum"]
    if isinstance(node, Mapping) and "first" in node:
        first = build_reward_set(
            node["first"], recipe.words, knowledge, recipe.rollout.form, "curriculum.first"
        )
        node = {**node, "first": first}
    chosen = instantiate(
        "curriculum", node, Curriculum,
        rewards=recipe.rewards, secrets=recipe.secrets, groups=recipe.rollout.groups,
    )  # fmt: skip
    if recipe.teacher is not None and not isinstance(chosen, NoCurriculum):
        raise ConfigError(
            "curriculum must be none with an algorithm that imitates a player, as its games are "
            f"not judged, not {option_of(chosen)}"
        )
    if chosen.needs_whole_games and not recipe.rollout.finishes:
        raise ConfigError(
            f"curriculum={option_of(chosen)} goes by how games end, and with rollout="
            f"{recipe.rollout.name} they are left before: use rollout=game or rollout=best_of"
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
