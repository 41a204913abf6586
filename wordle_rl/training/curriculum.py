"""Asks the curriculum: plans each step, shows it the games, and saves what JSON can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wordle_rl.game.rules import Game
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.runs.files import FolderError, plain
from wordle_rl.runs.instantiate import option_of
from wordle_rl.training.curricula.base import Curriculum


def plan_step(curriculum: Curriculum, recipe: Recipe) -> Recipe:
    """The recipe of the next step. Raises FolderError for a state with unknown secrets."""
    plan = curriculum.plan()
    known = {*recipe.secrets, *recipe.allowed_secrets}
    if unknown := [secret for secret in plan.replayed if secret not in known]:
        raise FolderError(f"state.json: {unknown[0]!r} waits to be replayed but is no secret")
    return replace(recipe, rewards=plan.rewards, replayed=plan.replayed)


def observe_step(
    curriculum: Curriculum, rollouts: Sequence[Rollout]
) -> tuple[dict[str, float], str | None]:
    """Show the curriculum the games of a finished step, once.

    Returns metrics, and a text about the switch to another stage if there was one.
    """
    plan = curriculum.plan()
    first: dict[int, Rollout] = {}  # of each game: with candidates a game has many rollouts
    groups: dict[int, list[Game]] = {}
    for rollout in rollouts:
        first.setdefault(id(rollout.whole_game), rollout)
    for rollout in first.values():
        groups.setdefault(rollout.group, []).append(rollout.whole_game)
    curriculum.observe([*groups.values()])
    stage = curriculum.plan().stage
    metrics: dict[str, Any] = {**curriculum.metrics(), "replayed": len(plan.replayed)}
    return (
        {f"curriculum/{name}": float(value) for name, value in metrics.items()},
        None if stage == plan.stage else f"{plan.stage} -> {stage}",
    )


def save_curriculum(curriculum: Curriculum) -> dict[str, Any]:
    """The curriculum's state. Raises TypeError unless it survives JSON unchanged."""
    state = curriculum.state_dict()
    if plain(state) != state:
        raise TypeError(
            f"curriculum={option_of(curriculum)}: state_dict must hold what JSON can: "
            f"dicts with text keys, lists, text, numbers and booleans, not {state}"
        )
    return state
