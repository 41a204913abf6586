"""Builds a reward set from its node in the config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.rewards.base import Reward
from wordle_rl.rewards.scoring import MOST_WEIGHT, RewardSet
from wordle_rl.runs.instantiate import ConfigError, check_range, check_type, instantiate
from wordle_rl.words.lists import WordLists


def build_reward_set(
    node: Any,
    words: WordLists,
    knowledge: Knowledge,
    form: str = "conversation",
    where: str = "reward",
) -> RewardSet:
    """Build a RewardSet. The node's `components` map names to rewards, each with its weight.

    where: the key of the node, for error messages.
    """
    components = node.get("components") if isinstance(node, Mapping) else node
    if not isinstance(components, Mapping):
        raise ConfigError(f"{where}.components must be a group of rewards, not {components!r}")
    parts, weights = {}, {}
    for name, given in components.items():
        if given is None:
            continue  # switched off by an override
        key = f"{where}.components.{name}"
        settings = {**given} if isinstance(given, Mapping) else given
        if isinstance(settings, dict):
            weights[name] = settings.pop("weight", 1.0)
            check_type(f"{key}.weight", weights[name], float)
            check_range(f"{key}.weight", weights[name], 0, MOST_WEIGHT)
        parts[name] = instantiate(
            key, settings, Reward, words=words, knowledge=knowledge, form=form
        )
    return instantiate(where, {**node, "components": parts, "weights": weights}, RewardSet)
