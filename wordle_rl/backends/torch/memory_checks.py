"""Settles the memory of a run before its model is loaded.

Prints the memory plan, refuses what cannot fit, and limits what is kept on a CPU.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from wordle_rl.backends.adapter_conversion import is_adapter, read_adapter_config
from wordle_rl.backends.torch.memory_plan import Planner
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.memory_plan import GB, LEAST_MICRO_BATCH, MemoryPlan, Place, usable
from wordle_rl.policy.model_names import locate
from wordle_rl.policy.settings import UNTRAINED
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.experiment import Experiment

_LARGE = 50_000_000  # bytes of weights
# Sizes of two caches of prepared matrix products: oneDNN has one, torch has another above it. Both
# sizes are read at the first operation.
_CACHE_SIZES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "32"}


def plan_run(setup: Experiment, place: Place, precision: Precision, memory: float) -> Experiment:
    """Plan a run before its model is loaded. Returns it with numbers in place of auto.

    memory: bytes of the device for this process. Prints a few lines for a pretrained model. Raises
    ConfigError in one line when the run cannot fit, with the setting that is too large.
    """
    asked, rollout = setup.backend.micro_batch_tokens, setup.recipe.rollout
    pretrained = is_pretrained(setup)
    if not pretrained and "auto" not in (asked, rollout.games_at_once):
        return setup
    limit = _limit(setup, place, memory)
    planner = Planner(setup, place, precision)
    plan = planner.plan()
    if rollout.games_at_once == "auto":
        games = planner.choose_games(plan, limit) or min(planner.games, rollout.num_generations)
        plan = replace(plan, games=games)
    if asked == "auto":
        tokens = planner.choose_tokens(plan, limit)
        plan = planner.plan(plan.games, tokens or LEAST_MICRO_BATCH)
    if pretrained:
        print("\n".join(describe_run(plan, limit, place)), flush=True)
    check_fit(planner, plan, limit)
    return _settle(setup, plan)


def _settle(setup: Experiment, plan: MemoryPlan) -> Experiment:
    """An experiment with a plan's numbers in place of auto."""
    backend: Any = setup.backend
    recipe, rollout = setup.recipe, setup.recipe.rollout
    if rollout.games_at_once == "auto":  # a teacher's games take no memory of the model
        recipe = replace(recipe, rollout=replace(rollout, games_at_once=plan.games or None))
    backend = replace(backend, micro_batch_tokens=plan.micro_batch_tokens)
    return replace(setup, backend=backend, recipe=recipe)


def limit_product_caches(setup: Experiment, device: str) -> None:
    """Let oneDNN and torch keep few prepared matrix products for a pretrained model on the CPU.

    Call this before the first operation. A product is prepared for one size of matrices, with
    memory of its own, and sizes differ from batch to batch. Each cache keeps 1,024 of them, which
    takes gigabytes with SmolLM2. Small models are faster with that default.
    """
    if device == "cpu" and is_pretrained(setup):
        for variable, size in _CACHE_SIZES.items():
            os.environ.setdefault(variable, size)


def _limit(setup: Experiment, place: Place, memory: float) -> float:
    """Bytes that the run may use: what the device offers, or trainer= allows if that is less."""
    trainer = setup.trainer
    allowed = trainer.memory_limit_gb if place == "cpu" else trainer.device_memory_limit_gb
    limit = usable(memory, place)
    return limit if allowed is None else min(limit, allowed * GB)


def is_pretrained(setup: Experiment) -> bool:
    """Whether a run begins with a model of a real size, and not with one of the project's own."""
    return setup.model.path != UNTRAINED and _is_large(setup.model.location)


def _is_large(location: str) -> bool:
    """Whether a model, or the one under an adapter, is too large to be one of the project's own."""
    folder = Path(location)
    if not folder.is_dir():
        return True  # of the hub
    if is_adapter(folder):
        described = read_adapter_config(folder)
        base = described.get("base_model_name_or_path") or described.get("model")
        return base is not None and _is_large(locate(str(base)))
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return sum(file.stat().st_size for file in files) >= _LARGE


def describe_run(plan: MemoryPlan, limit: float, place: Place) -> list[str]:
    """A plan in a few lines. limit: bytes that may be used."""
    kept, learning = plan.kept, plan.learning_used
    own = f"{plan.games} games at once in training and " if plan.games else ""
    others = f"{plan.held_out_games} outside it" if own else f"{plan.held_out_games} in validation"
    again = ", layers computed again" if plan.uses_checkpointing else ""
    sums = ", their sums with the base" if kept.sums else ""
    return [
        f"memory plan: {_show(plan.total)} GB of tensors at the most, of {_show(limit)} GB that "
        f"may be used on {place}",
        f"  always: {_show(kept.always)} GB (weights {_show(kept.weights)}, adapters{sums}, "
        f"moments and reference {_show(kept.always - kept.weights)})",
        f"  playing: {_show(plan.while_playing - kept.always)} GB more, for {own}{others}",
        f"  learning: {_show(plan.while_learning() - kept.always)} GB more, for micro-batches of "
        f"{plan.micro_batch_tokens:,} tokens or one game of {plan.game.whole:,} (activations "
        f"{_show(learning.activations)}, logits {_show(learning.logits)}{again})",
    ]


def _show(size: float) -> str:
    """Bytes as GB."""
    return f"{size / GB:.1f}" if size >= GB else f"{size / GB:.2f}"


def check_fit(planner: Planner, plan: MemoryPlan, limit: float) -> None:
    """Raise ConfigError, with the setting that is too large, unless a plan fits into a limit."""
    have = f"the {limit / GB:.1f} GB that may be used"
    if plan.while_playing > limit:
        raise ConfigError(_explain_games(planner, plan, limit, have))
    if plan.while_learning() <= limit:
        return
    need = f"{plan.while_learning() / GB:.1f} GB"
    fitting = planner.choose_tokens(plan, limit, plan.micro_batch_tokens)
    if fitting:
        raise ConfigError(
            f"backend.micro_batch_tokens must be {fitting} or less to fit into {have}, not "
            f"{plan.micro_batch_tokens}, which needs {need}"
        )
    checkpointed = planner.model.learn(planner.game, 1, checkpointing=True)
    way = (
        "set backend.gradient_checkpointing=true, or lower sampling.max_tokens"
        if not plan.uses_checkpointing and plan.while_learning(checkpointed) <= limit
        else "choose a smaller model, or lower sampling.max_tokens"
    )
    raise ConfigError(
        f"model={planner.setup.model.name} must learn from games of up to {planner.game.whole} "
        f"tokens within {have}, not {need}: {way}"
    )


def _explain_games(planner: Planner, plan: MemoryPlan, limit: float, have: str) -> str:
    """Why rollouts do not fit, and how many would."""
    model, rollout = planner.setup.model, planner.setup.recipe.rollout
    held_out = plan.find_held_out_games(limit)
    if held_out == 0:
        return (
            f"model={model.name} must fit into {have} with one game, not need "
            f"{plan.while_held_out(1) / GB:.1f} GB: choose a smaller model or model.lora"
        )
    if held_out < plan.held_out_games:
        return (
            f"model.games_at_once must be {held_out} or less to fit into {have}, not "
            f"{model.games_at_once}, which needs {plan.while_held_out() / GB:.1f} GB"
        )
    need = f"{plan.while_training() / GB:.1f} GB"
    if games := planner.choose_games(plan, limit):
        asked = "null" if rollout.games_at_once is None else rollout.games_at_once
        return (
            f"rollout.games_at_once must be auto, or {games} or less, to fit into {have}, not "
            f"{asked}: {plan.games} games at once need {need}"
        )
    return (
        f"rollout.num_generations must be {plan.find_games(limit)} or less to fit into {have}, not "
        f"{rollout.num_generations}, because a group plays together: {plan.games} games need {need}"
    )


def measure_memory() -> int:
    """Bytes of this machine's memory, or of its container's if that has a limit."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # of both versions of cgroups
        try:
            memory = min(memory, int((Path("/sys/fs/cgroup") / file).read_text()))
        except (OSError, ValueError):  # there is none, or no limit
            continue
    return memory
