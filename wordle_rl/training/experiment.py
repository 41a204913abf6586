"""Everything a training run is built from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from wordle_rl.data.load import TrainingData
from wordle_rl.evaluation.regret import Regret
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import BackendSettings, ModelSettings
from wordle_rl.rollouts.base import Recipe
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
    data: TrainingData | None = None  # what is trained on instead of planned games
    validation: tuple[str, ...]  # secrets whose games choose the best checkpoint
    test: tuple[str, ...]  # secrets of the final report

    @property
    def greedy(self) -> Sampling:
        """Sampling without randomness, the default outside training."""
        return dataclasses.replace(self.recipe.sampling, temperature=0.0)
