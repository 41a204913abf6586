"""Everything a training run is built from, and the record of what its model was taught."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from wordle_rl.data.load import TrainingData
from wordle_rl.evaluation.regret import Regret
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.policy.models import UNTRAINED
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling, Temperature
from wordle_rl.policy.settings import BackendSettings, ModelSettings, ServerSettings
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.runs.instantiate import MOST, MOST_GAMES, MOST_SAMPLES, Count, Within, option_of
from wordle_rl.training.curricula import Curriculum
from wordle_rl.training.lineage import Stage, describe_lineage, prompt_name, stages_of
from wordle_rl.words.lists import WordLists, words_digest
from wordle_rl.words.splits import Splits

_Gigabytes = Annotated[float, Within(0, 1_000_000, "(]")]


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """trainer=: how long to train, and what happens between steps. Intervals are in steps."""

    steps: Count
    epochs: Annotated[float, Within(0, 100_000, "(]")] | None = None
    lag: Annotated[int, Within(0, 1000)] = 0
    validate_every: Count = 10
    patience: Count | None = None
    validation_temperature: Temperature = 0.0
    validation_samples: Annotated[int, Within(1, MOST_SAMPLES)] = 1
    validation_games: Annotated[int, Within(2, MOST)] | None = None
    watch_every: Annotated[int, Within(0, MOST)] = 0
    checkpoint_every: Count = 50
    keep_checkpoints: Annotated[int, Within(2, MOST)] = 2  # the newest may be broken
    games_every: Count = 10
    show_games: Annotated[int, Within(0, MOST_GAMES)] = 3
    report: bool = True
    report_limit: Count | None = None
    agreement: bool = False
    memory_limit_gb: _Gigabytes | None = None
    device_memory_limit_gb: _Gigabytes | None = None

    def validates(self, done: int) -> bool:
        """Whether a validation is due after so many steps."""
        return done % self.validate_every == 0 or done == self.steps


@dataclass(frozen=True, kw_only=True)
class LoggerSettings:
    """logger=: what writes beside metrics.jsonl."""

    tensorboard: bool = True
    wandb: bool = False


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
    reference: ModelSettings | None = None  # another model than the start, and its record
    reference_record: dict[str, Any] | None = None
    callbacks: dict[str, Any]  # Hydra's nodes of Lightning callbacks, by name
    validation: tuple[str, ...]  # secrets whose games choose the best checkpoint
    test: tuple[str, ...]  # secrets of the final report

    @property
    def greedy(self) -> Sampling:
        """Sampling without randomness, the default outside training."""
        return dataclasses.replace(self.recipe.sampling, temperature=0.0)

    @property
    def most_earlier_guesses(self) -> int:
        """The most guesses that a game of training begins with."""
        if self.recipe.states is not None:
            return max(len(state.clues) for state in self.recipe.states)
        return self.recipe.history.most if self.recipe.history else 0


def stages_of_run(setup: Experiment, run: str) -> list[Stage]:
    """The stages of the model that this run makes: its start model's stages, then the run."""
    recipe, splits, data = setup.recipe, setup.splits, setup.data
    secrets = {*recipe.secrets, *recipe.allowed_secrets} if data is None else {*data.secrets}
    holdout, digest = {*splits.val, *splits.test} - secrets, words_digest(secrets)
    stages, teacher = stages_of(setup.model.location), recipe.algorithm.imitates
    protocol = setup.config["words"]["protocol"]
    location = Path(setup.model.location)  # of a folder, only the last part is told
    start = location.name if location.is_dir() else setup.model.path
    stage = {
        "run": run,
        **({} if stages else {"start": start}),
        "algorithm": option_of(recipe.algorithm),
        "player": None if teacher is None or recipe.teacher is None else teacher.player,
        "protocol": protocol,
        **({"allowed_share": recipe.allowed_share} if recipe.allowed_share else {}),
        "secrets": len(secrets),
        "held_out": 0 if protocol == "all" or (data and data.unknown) else len(holdout),
        "digests": {"words": setup.words.digest, "splits": splits.digest, "secrets": digest},
        "prompt": prompt_name(recipe.style),
        "form": recipe.rollout.form,
        **({} if data is None else {"data": data.record()}),
        **({"reference": setup.reference_record} if setup.reference else {}),
    }
    return [*stages, stage]


def describe_run_lineage(stages: Sequence[Stage], setup: Experiment) -> str:
    """The lineage of a model of this run, in one line."""
    untrained = setup.model.path == UNTRAINED
    return describe_lineage(stages, setup.words, setup.splits, untrained=untrained)
