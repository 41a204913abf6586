"""The curriculum of a run at work: plans each step, sees its games, tells its switches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wordle_rl.game.rules import Game
from wordle_rl.rollouts.base import Recipe
from wordle_rl.rollouts.records import Rollout
from wordle_rl.runs.files import plain
from wordle_rl.runs.instantiate import option_of
from wordle_rl.runs.untrusted import FolderError
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.step import StepResult

if TYPE_CHECKING:
    from wordle_rl.training.reporter import Reporter


class CurriculumRunner:
    """Takes a run through its curriculum. prints: whether this process speaks for the run."""

    def __init__(self, curriculum: Curriculum, reporter: Reporter, *, prints: bool) -> None:
        self._curriculum, self._reporter, self._prints = curriculum, reporter, prints

    def state_dict(self) -> dict[str, Any]:
        """The curriculum's state. Raises TypeError unless JSON gives it back as it is."""
        state = self._curriculum.state_dict()
        if plain(state) != state:
            raise TypeError(
                f"curriculum={option_of(self._curriculum)}: state_dict must hold what JSON does, "
                f"dicts of text, lists, text, numbers and truth values, not {state}"
            )
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict() gave. Raises FolderError for anything else."""
        try:
            self._curriculum.load_state_dict(state)
        except ValueError as error:
            raise FolderError(f"state.json: {error}") from None

    def plan_step(self, recipe: Recipe) -> Recipe:
        """The recipe of the next step. Raises FolderError for a state of other words."""
        plan = self._curriculum.plan()
        if unknown := [secret for secret in plan.replayed if secret not in recipe.secrets]:
            raise FolderError(f"state.json: {unknown[0]!r} waits to be replayed, but is no secret")
        return replace(recipe, rewards=plan.rewards, replayed=plan.replayed)

    def observe(self, done: int, result: StepResult) -> dict[str, float]:
        """Take note of a whole step, the done-th; to be called once. Returns metrics."""
        plan = self._curriculum.plan()
        groups: dict[int, list[Game]] = {}
        first: dict[int, Rollout] = {}  # of each game, which may have many candidates
        for rollout in result.rollouts:
            first.setdefault(id(rollout.whole_game), rollout)
        for rollout in first.values():
            groups.setdefault(rollout.group, []).append(rollout.whole_game)
        self._curriculum.observe(list(groups.values()))
        stage = self._curriculum.plan().stage
        if self._prints and stage != plan.stage:
            told = f"curriculum after step {done}: {plan.stage} -> {stage}"
            print(f"\n{told}", flush=True)
            self._reporter.text("curriculum", told, done)
        metrics: dict[str, Any] = {**self._curriculum.metrics(), "replayed": len(plan.replayed)}
        return {f"curriculum/{name}": float(value) for name, value in metrics.items()}
