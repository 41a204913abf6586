"""Plans the memory of an experiment on one kind of device."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from wordle_rl.backends.torch.planned_model import PlannedModel, plan_model
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.memory_plan import (
    DEFAULT_MICRO_BATCH,
    LEAST_MICRO_BATCH,
    MOST_MICRO_BATCH,
    Kept,
    MemoryPlan,
    Place,
    choose_micro_batch,
    usable,
)
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.longest_game import count_training_games, measure_game


class Planner:
    """Plans one experiment on one kind of device.

    Games at once and tokens per micro-batch are arguments, so that they can be chosen. Raises
    ConfigError when the model's config cannot be found.
    """

    def __init__(
        self,
        setup: Experiment,
        place: Place,
        precision: Precision,
        model: PlannedModel | None = None,
    ) -> None:
        """model: of another plan with the same model, place and precision, which saves time."""
        self.setup = setup
        self.place: Place = place
        self.precision: Precision = precision
        self.game = measure_game(setup)
        self.model = model or plan_model(setup.model, place=place, precision=precision)

    @property
    def games(self) -> int:
        """The most games that are played at once: in training, or in validation and reports."""
        setup = self.setup
        held_out = max(len(setup.validation) * setup.trainer.validation_samples, len(setup.test))
        return max(count_training_games(setup), min(setup.model.games_at_once, held_out))

    @property
    def micro_batch_tokens(self) -> int:
        asked: Any = self.setup.backend.micro_batch_tokens
        return DEFAULT_MICRO_BATCH if asked == "auto" else asked

    def plan(
        self, games: int | None = None, tokens: int | None = None, *, compare: bool = False
    ) -> MemoryPlan:
        """The plan with so many games at once and padded tokens in a micro-batch.

        compare: plan with and without gradient checkpointing, not only what the run uses.
        """
        games, tokens = games or self.games, tokens or self.micro_batch_tokens
        entropy = self.setup.recipe.algorithm.needs_entropy
        uses = bool(getattr(self.setup.backend, "gradient_checkpointing", False))
        plain, lean = (
            self.model.learn(
                self.game, tokens, entropy=entropy, checkpointing=wanted if compare else uses
            )
            for wanted in (False, True)
        )
        return MemoryPlan(
            games=games,
            micro_batch_tokens=tokens,
            game=self.game,
            kept=self._kept,
            playing=self.model.play(self.game, games),
            learning=plain,
            checkpointing=lean,
            uses_checkpointing=uses,
        )

    @cached_property
    def _kept(self) -> Kept:
        algorithm = self.setup.recipe.algorithm
        return self.model.keep(self.setup.optim, reference=algorithm.needs_reference)

    def choose_tokens(self, plan: MemoryPlan, limit: float, most: int = MOST_MICRO_BATCH) -> int:
        """The largest micro-batch, at most `most` padded tokens, that fits into so many bytes.

        0 if not even one game fits.
        """

        def need(tokens: int) -> int:
            learning = self.model.learn(
                self.game, tokens,
                entropy=self.setup.recipe.algorithm.needs_entropy,
                checkpointing=plan.uses_checkpointing,
            )  # fmt: skip
            return plan.while_learning(learning)

        # A longer game is a micro-batch of its own, so fewer tokens than that change nothing.
        least = min(max(LEAST_MICRO_BATCH, self.game.whole // 2 + 1), most)
        return choose_micro_batch(most, need, limit, least)


def find_games_at_once(planner: Planner, memory: float) -> int:
    """The most games at once that fit into a device's memory, in whole groups, 0 if none do.

    memory: bytes of the device for this process.
    """
    size = planner.setup.recipe.rollout.num_generations
    games = count_training_games(planner.setup)
    most = planner.plan(games).find_games(usable(memory, planner.place))
    return most // size * size
