"""Configs that earlier versions saved, put into the form that this version reads."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

_ADDED = {
    **{"init_from": None, "init_checkpoint": "best", "allow_mismatch": False, "restart": False},
    "data": {"_target_": "wordle_rl.data.settings.DataSettings"},
    "vllm": {"_target_": "wordle_rl.policy.servers.ServerSettings"},
}
_MOVED = {  # pattern of a class -> where it is now
    r"settings\.((Model|Lora|Lightning|Mlx)Settings)": r"policy.settings.\1",
    r"settings\.(WordSettings)": r"words.settings.\1",
    r"settings\.((Trainer|Logger)Settings)": r"training.settings.\1",
    r"curricula\.(.+)": r"training.curricula.\1",
    r"history\.(\w+)": r"rollouts.history.\1",
    r"prompts\.([A-Z]\w*)": r"prompts.styles.\1",
    r"game\.(Rules)": r"game.rules.\1",
    r"sampling\.(Sampling)": r"policy.sampling.\1",
}
_OPTIMIZERS = {"adamw": "AdamW", "muon": "Muon"}


def convert_config(saved: DictConfig) -> DictConfig:
    """A saved config as this version would have saved it. One of this version stays as it is."""
    config = OmegaConf.merge(_ADDED, _with_moved_classes(OmegaConf.to_container(saved)))
    assert isinstance(config, DictConfig)
    if OmegaConf.select(config, "backend.threads") == 0:
        config.backend.threads = "auto"
    config.model.pop("optimizer", None)
    if OmegaConf.select(config, "optim._target_") == "wordle_rl.optim.Optim":
        name = _OPTIMIZERS.get(str(config.optim.name), "AdamW")
        config.optim._target_ = f"wordle_rl.policy.optim.{name}"
    return config


def _with_moved_classes(node: Any) -> Any:
    """The same settings with the present place of each class."""
    if isinstance(node, list):
        return [_with_moved_classes(value) for value in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _find_class(value) if key == "_target_" else _with_moved_classes(value)
        for key, value in node.items()
    }


def _find_class(target: Any) -> Any:
    for pattern, place in _MOVED.items():
        if isinstance(target, str) and (found := re.fullmatch(rf"wordle_rl\.{pattern}", target)):
            return "wordle_rl." + found.expand(place)
    return target
