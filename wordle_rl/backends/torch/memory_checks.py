"""Prints the memory plan of a run before its model is loaded, and refuses what cannot fit."""

from __future__ import annotations

import os
from pathlib import Path

from wordle_rl.backends.adapter_conversion import is_adapter, read_adapter_config
from wordle_rl.backends.torch.memory_plan import Planner
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.memory_plan import GB, LEAST_MICRO_BATCH, MemoryPlan, Place, usable
from wordle_rl.policy.settings import UNTRAINED
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.longest_game import count_training_games

_LARGE = 50_000_000  # bytes of weights


def plan_run(setup: Experiment, place: Place, precision: Precision, memory: float) -> int:
    """Plan a run before its model is loaded. Returns the tokens of a micro-batch.

    memory: bytes of the device for this process. Prints a few lines for a pretrained model. Raises
    ConfigError in one line when the run cannot fit, with the setting that is too large.
    """
    asked, pretrained = setup.backend.micro_batch_tokens, is_pretrained(setup)
    if not pretrained and asked != "auto":
        return asked
    limit = _limit(setup, place, memory)
    planner = Planner(setup, place, precision)
    plan = planner.plan()
    if asked == "auto":
        tokens = planner.choose_tokens(plan, limit)
        plan = planner.plan(tokens=tokens or LEAST_MICRO_BATCH)
    if pretrained:
        print("\n".join(describe_run(plan, limit, place)), flush=True)
    check_fit(planner, plan, limit)
    return plan.micro_batch_tokens


def _limit(setup: Experiment, place: Place, memory: float) -> float:
    """Bytes that the run may use: what the device offers, or trainer= allows if that is less."""
    trainer = setup.trainer
    allowed = trainer.memory_limit_gb if place == "cpu" else trainer.device_memory_limit_gb
    limit = usable(memory, place)
    return limit if allowed is None else min(limit, allowed * GB)


def is_pretrained(setup: Experiment) -> bool:
    """Whether a run begins with a model of a real size, neither embedded nor untrained."""
    path = setup.model.path
    return path != UNTRAINED and not path.startswith("embedded/") and _is_large(path)


def _is_large(location: str) -> bool:
    """Whether a model, or the one under an adapter, is too large to be one of the project's own."""
    folder = Path(location)
    if not folder.is_dir():
        return True  # of the hub
    if is_adapter(folder):
        described = read_adapter_config(folder)
        base = described.get("base_model_name_or_path") or described.get("model")
        return base is not None and _is_large(str(base))
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("*.gguf")]
    return sum(file.stat().st_size for file in files) >= _LARGE


def describe_run(plan: MemoryPlan, limit: float, place: Place) -> list[str]:
    """A plan in a few lines. limit: bytes that may be used."""
    kept = plan.kept
    learning = plan.learning_used
    return [
        f"memory plan: {plan.total / GB:.1f} GB at the most, of {limit / GB:.1f} GB that may be "
        f"used on {place}",
        f"  always: {kept.always / GB:.1f} GB (weights {kept.weights / GB:.1f}, adapters, moments "
        f"and reference {(kept.always - kept.weights) / GB:.1f})",
        f"  playing: {(plan.while_playing() - kept.always) / GB:.1f} GB more, for {plan.games} "
        f"games at once of up to {plan.game.whole:,} tokens",
        f"  learning: {(plan.while_learning() - kept.always) / GB:.1f} GB more, for micro-batches "
        f"of {plan.micro_batch_tokens:,} tokens (activations {learning.activations / GB:.1f}, "
        f"logits {learning.logits / GB:.1f})",
    ]


def check_fit(planner: Planner, plan: MemoryPlan, limit: float) -> None:
    """Raise ConfigError, with the setting that is too large, unless a plan fits into a limit."""
    have = f"the {limit / GB:.1f} GB that may be used"
    if plan.while_playing() > limit:
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
        if hasattr(planner.setup.backend, "gradient_checkpointing")
        and not plan.uses_checkpointing
        and plan.while_learning(checkpointed) <= limit
        else "choose a smaller model, or lower sampling.max_tokens"
    )
    raise ConfigError(
        f"model={planner.setup.model.name} must learn from games of up to {planner.game.whole} "
        f"tokens within {have}, not {need}: {way}"
    )


def _explain_games(planner: Planner, plan: MemoryPlan, limit: float, have: str) -> str:
    """Why rollouts do not fit, and how many would."""
    setup = planner.setup
    most = plan.find_games(limit)
    need = f"{plan.while_playing() / GB:.1f} GB"
    if most == 0:
        return (
            f"model={setup.model.name} must fit into {have} with one game, not need "
            f"{plan.while_playing(1) / GB:.1f} GB: choose a smaller model or model.lora"
        )
    training = count_training_games(setup)
    if training <= most:
        return (
            f"model.games_at_once must be {most} or less to fit into {have}, not "
            f"{setup.model.games_at_once}, which needs {need}"
        )
    rollout = setup.recipe.rollout
    groups = most // rollout.num_generations * setup.backend.devices
    where = (
        "rollout.games_at_once"
        if isinstance(getattr(rollout, "games_at_once", None), int)
        else f"rollout.groups x num_generations={rollout.num_generations}"
    )
    fewer = f"set rollout.groups={groups}" if groups else "lower num_generations"
    return (
        f"{where} must be {most} games at once or fewer to fit into {have}, not {training}, which "
        f"need {need}: {fewer}, or lower sampling.max_tokens"
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
