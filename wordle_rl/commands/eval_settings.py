"""Settings of eval.py, see conf/eval.yaml, and what a run brings along for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from wordle_rl.commands.build import build_model_settings, check_keys, resolve
from wordle_rl.commands.resume import adopt, list_keys, read_saved_config
from wordle_rl.policy.settings import MAIN, ModelSettings
from wordle_rl.rollouts.forms import FORMS
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder, find_run
from wordle_rl.runs.instantiate import (
    MOST,
    MOST_GAMES,
    MOST_SAMPLES,
    ConfigError,
    check_above_zero,
    check_choice,
    check_range,
    check_seed,
    instantiate,
)
from wordle_rl.runs.paths import ROOT

_MOST_SHOTS = 100
_FOR_TRAINING = {"optim", "rollout", "num_generations"}  # a model's file may choose these
_FROM_RUN = ("model", "prompt", "reward", "words", "rules")  # taken from a run unless overridden
_PARTS = {"model", "backend", "prompt", "reward", "words", "rules", "sampling", "history"}


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """What to evaluate and how, see conf/eval.yaml."""

    run: str | None = None
    checkpoint: str = "best"
    player: str | None = None
    form: str = "conversation"
    allow_mismatch: bool = False
    opener: str | None = None
    tree: str | None = None
    compare: bool = True
    shots: int = 0
    samples: int = 1
    limit: int | None = None
    time_limit: float | None = None
    show: int = 4
    seed: int = 0
    output_dir: str = "outputs"
    json: bool = False

    def __post_init__(self) -> None:
        if self.opener is not None:  # pages show words in capitals
            object.__setattr__(self, "opener", self.opener.lower())
        tree = self.player == "tree"
        for wrong, told in (
            (self.player and self.run, "player and run exclude each other: give one of them"),
            (tree and not self.tree, "player=tree needs tree=<file of a decision tree>"),
            (tree and self.opener, "player=tree and opener exclude each other: a tree has its own"),
            (self.checkpoint != "best" and not self.run,
             f"checkpoint={self.checkpoint} needs run=<its run>"),
            (self.shots and self.player, "player and shots exclude each other: only a model reads"),
            (self.shots and self.form == "tool",
             "shots needs form=conversation or fresh, not tool"),
        ):  # fmt: skip
            if wrong:
                raise ConfigError(told)
        check_choice("form", self.form, FORMS)
        check_seed("seed", self.seed)
        check_range("shots", self.shots, 0, _MOST_SHOTS)
        check_range("samples", self.samples, 1, MOST_SAMPLES)
        check_range("show", self.show, 0, MOST_GAMES)
        if self.limit is not None:
            check_range("limit", self.limit, 1, MOST)
        if self.time_limit is not None:
            check_above_zero("time_limit", self.time_limit, MOST, unit=" seconds")


def read_settings(cfg: DictConfig, overrides: Sequence[str]) -> tuple[dict[str, Any], EvalSettings]:
    """The resolved config, and the settings of this command alone. Raises ValueError in one line.

    A run's settings apply unless the command line overrides them. overrides: its arguments.
    """
    config = _add_run(cfg, list_keys(overrides))
    names = set(EvalSettings.__dataclass_fields__)
    check_keys(config, _PARTS | names)
    target = {"_target_": f"{EvalSettings.__module__}.EvalSettings"}
    own = {key: value for key, value in config.items() if key in names}
    return config, instantiate("", target | own, EvalSettings)


def _add_run(cfg: DictConfig, given: set[str]) -> dict[str, Any]:
    if not _FOR_TRAINING & {key.partition(".")[0] for key in given}:
        with open_dict(cfg):
            for part in _FOR_TRAINING:
                cfg.pop(part, None)
    if cfg.player is not None and "model" in given:
        raise ConfigError("player and model exclude each other: give one of them")
    if cfg.run is None:
        return resolve(cfg)
    folder = find_run(str(cfg.run), outputs=ROOT / str(cfg.output_dir))
    saved = read_saved_config(folder)
    if other := [key for key in sorted(given) if re.match(r"model$|model\.(path|lora|shape)", key)]:
        raise ConfigError(f"{other[0]} and run exclude each other: a run has its own model")
    # Checkpoints need their run's backend, but this command chooses how that computes.
    backend = ["backend"] if saved.backend._target_ != cfg.backend._target_ else []
    for node in (*_FROM_RUN, *backend):
        adopt(cfg, saved, node, given)
    config = resolve(cfg)
    if "form" not in given:
        config["form"] = saved.rollout.form
    if "words" not in given and "words.split" not in given:
        config["words"]["split"] = "all" if config["words"]["protocol"] == "all" else "test"
    config["run"] = str(folder.path)
    return config


def choose_model(config: dict[str, Any], settings: EvalSettings) -> ModelSettings:
    """The model's settings. With a run, their path is in the chosen checkpoint, verified."""
    which = settings.checkpoint
    if settings.run is None or which == "start":
        return build_model_settings(config["model"])
    store = CheckpointStore(RunFolder(Path(settings.run)).checkpoints, read_only=True)
    if which in ("best", "last"):
        found = store.load_best() if which == "best" else store.load_latest()
        if found is None:
            raise ConfigError(f"{store.folder}: there is no {which} checkpoint yet")
    elif (ROOT / which).is_dir():
        found = store.verify(ROOT / which)
    else:
        raise ConfigError(
            f"checkpoint must be best, last, start or a checkpoint's folder, not {ROOT / which}"
        )
    own = {"path": str(found.path / "model"), "revision": MAIN, "shape": {}, "lora": None}
    return build_model_settings({**config["model"], **own})
