"""What verl cannot follow: choices that are refused, and choices that get a printed line.

A choice is refused where the run would be another one without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.runs.instantiate import ConfigError, option_of
from wordle_rl.runs.paths import module_command
from wordle_rl.training.experiment import Experiment

ALGORITHMS = {  # ours -> verl's advantages, how losses are averaged, and the loss
    "grpo": ("grpo", "seq-mean-token-mean", "vanilla"),
    "dapo": ("grpo", "token-mean", "vanilla"),
    "dr_grpo": ("grpo", "seq-mean-token-sum-norm", "vanilla"),
    "rloo": ("rloo", "seq-mean-token-sum", "vanilla"),
    "gspo": ("grpo", "seq-mean-token-mean", "gspo"),
}
_ROLLOUT = "actor_rollout_ref.rollout"

# Key of ours -> the value without effect, and what happens in verl with any other.
UNFOLLOWED: dict[str, tuple[Any, str]] = {
    "rollout.credit": ("game", "each turn of a game gets the advantage of the whole game"),
    "rollout.discount": (1.0, "later turns count in full, because credit is by game"),
    "rollout.letter_weight": (0.0, "no letter has an advantage of its own"),
    "rollout.games_at_once": (None, f"set {_ROLLOUT}.max_num_seqs for the memory of games"),
    "model.quantize": (None, "the base is not rounded"),
    "model.revision": ("main", "verl loads main: fetch that revision, and name its folder"),
    "backend.accelerator": ("auto", "verl computes on GPUs"),
    "backend.threads": ("auto", "verl decides about threads"),
    "backend.compile": (None, "verl has a compilation of its own"),
    "backend.cache_gb": (None, "it is for MLX alone"),
    "optim.momentum": (None, "it is for Muon alone"),
    "optim.rest_lr_ratio": (None, "it is for Muon alone"),
    "trainer.watch_every": (0, "no greedy games between validations"),
    "trainer.report": (False, "no report: play test.parquet with trainer.val_only=true"),
    "trainer.report_limit": (None, "there is no report"),
    "trainer.tree": (None, "no regret is measured"),
    "trainer.memory_limit_gb": (None, "no limit of memory"),
    "trainer.device_memory_limit_gb": (None, f"set {_ROLLOUT}.gpu_memory_utilization"),
    "trainer.last_line": (None, "nothing is printed at the end"),
}


def check_choices(setup: Experiment) -> None:
    """Raise ConfigError for choices that no key of verl can stand for."""
    config, recipe = setup.config, setup.recipe
    for key in ("init_from", "resume"):
        if config[key] is not None:
            raise ConfigError(
                f"{key} must be null for verl: write the run's model with "
                f"{module_command('export')} run={config[key]} format=merged, and give "
                "model.path=<its folder>"
            )
    if option_of(recipe.algorithm) not in ALGORITHMS:
        raise ConfigError(
            f"algorithm must be {', '.join(ALGORITHMS)} for verl, not {option_of(recipe.algorithm)}"
        )
    for key, value, allowed in (
        ("rollout", recipe.rollout.name, ("game", "turn")),
        ("rollout.form", recipe.rollout.form, ("conversation", "tool")),
    ):
        if value not in allowed:
            raise ConfigError(f"{key} must be {' or '.join(allowed)} for verl, not {value}")
    if recipe.rollout.groups % recipe.algorithm.minibatches:
        raise ConfigError(
            f"algorithm.minibatches must divide rollout.groups={recipe.rollout.groups} for verl, "
            f"not {recipe.algorithm.minibatches}"
        )
    location = Path(setup.model.location)
    if setup.model.shape or (location / "adapter_config.json").is_file():
        what = "an adapter" if not setup.model.shape else "an untrained model"
        raise ConfigError(
            f"model.path must be a hub name or a folder with whole weights for verl, not {what}: "
            f"{setup.model.path}"
        )


def list_unfollowed(setup: Experiment) -> Iterator[str]:
    """The choices that verl cannot follow, each with what happens instead."""
    config, algorithm = setup.config, setup.recipe.algorithm
    muon = setup.optim.name == "muon"
    for key, (neutral, what) in UNFOLLOWED.items():
        group, _, name = key.partition(".")
        value = config[group].get(name, neutral)
        if value != neutral and (muon or "Muon" not in what):
            yield f"{key}={_shown(value)}: {what}"
    if option_of(setup.curriculum) != "none":
        yield f"curriculum={option_of(setup.curriculum)}: rewards and secrets stay as they are"
    if muon:
        yield f"optim=muon: AdamW trains every weight, with optim.lr={setup.optim.lr:g}"
    if setup.optim.schedule == "constant" and setup.optim.warmup_steps:
        yield "optim.warmup_steps with optim.schedule=constant: verl's rate is one step behind"
    if setup.backend.name == "mlx":
        yield "backend=mlx: verl computes with torch"
    if setup.recipe.history is not None:
        yield "history by step: where a game begins is drawn once per row of the file"
    if setup.recipe.allowed_share:
        yield "words.allowed_share by step: it is the share of such secrets among the rows"
    if algorithm.resample_rounds:
        yield f"algorithm.resample={algorithm.resample_rounds}: verl replaces groups without limit"
    if isinstance(algorithm, Dapo) and algorithm.overlong == "filter":
        yield "algorithm.overlong=filter: answers that were cut off are trained on"


def _shown(value: Any) -> str:
    """A value as on a command line."""
    return value if isinstance(value, str) else json.dumps(value)
