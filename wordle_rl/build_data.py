"""Opens the file of data= for a run, and checks that the other parts fit it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.data.load import TrainingData, load_data
from wordle_rl.data.settings import DataSettings
from wordle_rl.data.states import StateReader
from wordle_rl.game.feedback_table import cache_folder
from wordle_rl.game.rules import Rules
from wordle_rl.rollouts.base import RolloutKind
from wordle_rl.rollouts.history import History
from wordle_rl.runs.instantiate import ConfigError, instantiate, option_of
from wordle_rl.training.settings import TrainerSettings
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits


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
