"""Plans the memory of an experiment on one kind of device."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from wordle_rl.backends.torch.planned_model import PlannedModel, plan_model
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.memory_plan import (
    DEFAULT_MICRO_BATCH,
    LEAST_MICRO_BATCH,
    MOST_MICRO_BATCH,
    Kept,
    Learning,
    MemoryPlan,
    Place,
    Playing,
    choose_micro_batch,
)
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.longest_game import (
    count_held_out_games,
    count_training_games,
    measure_held_out_game,
    measure_training_game,
)


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
        self.game = measure_training_game(setup)
        self.model = model or plan_model(setup.model, place=place, precision=precision)
        self.games = count_training_games(setup)
        self.held_out_games = count_held_out_games(setup, self.model.parameters)

    @property
    def micro_batch_tokens(self) -> int:
        asked: Any = self.setup.backend.micro_batch_tokens
        return DEFAULT_MICRO_BATCH if asked == "auto" else asked

    def plan(
        self, games: int | None = None, tokens: int | None = None, *, compare: bool = False
    ) -> MemoryPlan:
        """The plan with so many games at once in training, and padded tokens in a micro-batch.

        compare: plan with and without gradient checkpointing, not only what the run uses.
        """
        tokens = tokens or self.micro_batch_tokens
        uses: bool = getattr(self.setup.backend, "gradient_checkpointing", False)
        plain, lean = (self._learn(tokens, wanted if compare else uses) for wanted in (False, True))
        playing, held_out = self._plays
        return MemoryPlan(
            games=self.games if games is None else games,
            held_out_games=self.held_out_games,
            micro_batch_tokens=tokens,
            game=self.game,
            kept=self._kept,
            playing=playing,
            held_out=held_out,
            learning=plain,
            checkpointing=lean,
            uses_checkpointing=uses,
        )

    def _learn(self, tokens: int, checkpointing: bool) -> Learning:
        entropy = self.setup.recipe.algorithm.needs_entropy
        return self.model.learn(self.game, tokens, entropy=entropy, checkpointing=checkpointing)

    @cached_property
    def _plays(self) -> tuple[Playing, Playing]:
        """What rollouts hold in training, and in validation and reports."""
        game = measure_held_out_game(self.setup)
        held_out = self.model.play(game, max(self.games, self.held_out_games))
        # In most runs the games of training are as long as the ones of validation.
        if not self.games or replace(self.game, trained=game.trained) == game:
            return held_out, held_out
        return self.model.play(self.game, self.games), held_out

    @cached_property
    def _kept(self) -> Kept:
        algorithm = self.setup.recipe.algorithm
        return self.model.keep(self.setup.optim, reference=algorithm.needs_reference)

    def choose_tokens(self, plan: MemoryPlan, limit: float, most: int = MOST_MICRO_BATCH) -> int:
        """The largest micro-batch, at most `most` padded tokens, that fits into so many bytes.

        0 if not even one game fits.
        """

        def need(tokens: int) -> int:
            return plan.while_learning(self._learn(tokens, plan.uses_checkpointing))

        # A longer game is a micro-batch of its own, so fewer tokens than that change nothing.
        least = min(max(LEAST_MICRO_BATCH, self.game.whole // 2 + 1), most)
        return choose_micro_batch(most, need, limit, least)

    def choose_games(self, plan: MemoryPlan, limit: float) -> int:
        """The most games at once in training, in whole groups, that fit into so many bytes.

        0 if not even one group fits.
        """
        size = self.setup.recipe.rollout.num_generations
        return plan.find_games(limit) // size * size
