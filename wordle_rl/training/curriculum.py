"""Runs the curriculum: plans each step, observes its games and reports each switch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wordle_rl.game.rules import Game
from wordle_rl.rollouts.base import Recipe
from wordle_rl.rollouts.records import Rollout
from wordle_rl.runs.files import FolderError, plain
from wordle_rl.runs.instantiate import option_of
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.step import StepResult

if TYPE_CHECKING:
    from wordle_rl.training.reporter import Reporter


class CurriculumRunner:
    """Takes a run through its curriculum. prints: whether this process reports switches."""

    def __init__(self, curriculum: Curriculum, reporter: Reporter, *, prints: bool) -> None:
        self._curriculum, self._reporter, self._prints = curriculum, reporter, prints

    def state_dict(self) -> dict[str, Any]:
        """The curriculum's state. Raises TypeError unless it survives JSON unchanged."""
        state = self._curriculum.state_dict()
        if plain(state) != state:
            raise TypeError(
                f"curriculum={option_of(self._curriculum)}: state_dict must hold what JSON can: "
                f"dicts with text keys, lists, text, numbers and booleans, not {state}"
            )
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict() returned. Raises FolderError for anything else."""
        try:
            self._curriculum.load_state_dict(state)
        except ValueError as error:
            raise FolderError(f"state.json: {error}") from None

    def plan_step(self, recipe: Recipe) -> Recipe:
        """The recipe of the next step. Raises FolderError for a state with unknown secrets."""
        plan = self._curriculum.plan()
        known = {*recipe.secrets, *recipe.allowed_secrets}
        if unknown := [secret for secret in plan.replayed if secret not in known]:
            raise FolderError(f"state.json: {unknown[0]!r} waits to be replayed but is no secret")
        return replace(recipe, rewards=plan.rewards, replayed=plan.replayed)

    def observe(self, done: int, result: StepResult) -> dict[str, float]:
        """Show the curriculum a finished step, once. Returns metrics.

        done: how many steps are finished.
        """
        plan = self._curriculum.plan()
        groups: dict[int, list[Game]] = {}
        first: dict[int, Rollout] = {}  # of each game: with candidates a game has many rollouts
        for rollout in result.rollouts:
            first.setdefault(id(rollout.whole_game), rollout)
        for rollout in first.values():
            groups.setdefault(rollout.group, []).append(rollout.whole_game)
        self._curriculum.observe(list(groups.values()))
        stage = self._curriculum.plan().stage
        if self._prints and stage != plan.stage:
            line = f"curriculum after step {done}: {plan.stage} -> {stage}"
            print(f"\n{line}", flush=True)
            self._reporter.text("curriculum", line, done)
        metrics: dict[str, Any] = {**self._curriculum.metrics(), "replayed": len(plan.replayed)}
        return {f"curriculum/{name}": float(value) for name, value in metrics.items()}
