"""Everything a training run is built from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wordle_rl.data.load import TrainingData
from wordle_rl.evaluation.regret import Regret
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import State
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.servers import ServerSettings
from wordle_rl.policy.settings import BackendSettings, ModelSettings
from wordle_rl.rollouts.base import Recipe
from wordle_rl.rollouts.history import History, fixed_states
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.settings import LoggerSettings, TrainerSettings
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The parts of a training run, before anything heavy is loaded."""

    config: dict[str, Any]  # resolved
    words: WordLists
    splits: Splits
    knowledge: Knowledge
    regret: Regret
    model: ModelSettings
    backend: BackendSettings
    optim: Optim
    trainer: TrainerSettings
    logger: LoggerSettings
    recipe: Recipe
    curriculum: Curriculum
    servers: ServerSettings | None = None  # play with rollout.engine=vllm
    data: TrainingData | None = None  # what is trained on instead of planned games
    validation: tuple[str, ...]  # secrets whose games choose the best checkpoint
    test: tuple[str, ...]  # secrets of the final report
    validation_history: History | None = None  # where validation games begin, None: empty boards

    @property
    def greedy(self) -> Sampling:
        """Sampling without randomness, the default outside training."""
        return dataclasses.replace(self.recipe.sampling, temperature=0.0)

    @cached_property
    def validation_starts(self) -> tuple[State, ...]:
        """The state in which the game on each validation secret begins, the same at every step."""
        return fixed_states(
            self.validation_history, self.validation,
            seed=self.recipe.seed, max_turns=self.recipe.rules.max_turns,
        )  # fmt: skip

    @property
    def most_given(self) -> int:
        """The most guesses that a game of training or validation begins with."""
        histories = (self.recipe.history, self.recipe.states, self.validation_history)
        return max((history.most for history in histories if history), default=0)
