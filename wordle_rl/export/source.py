"""What an export has to know of a checkpoint: its model, how it is asked, where it began."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import BackendSettings, ModelSettings
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.words.lists import WordLists


@dataclass(frozen=True, kw_only=True)
class Start:
    """The model under an adapter; for a whole model, the one that training began with."""

    name: str  # hub name, folder, embedded/..., fetched/..., or untrained
    revision: str
    adapted: bool  # whether the checkpoint is an adapter on it
    rounded: str | None = None  # to how many bits it was rounded in training


@dataclass(frozen=True, kw_only=True)
class Source:
    """A checkpoint of a run."""

    step: int
    model: ModelSettings  # its path is the checkpoint's model folder
    start: Start
    lineage: str  # one line: its stages, and the secrets that each could have
    backend: BackendSettings  # the run's, in float32 on one device
    form: str
    style: PromptStyle
    sampling: Sampling
    rules: Rules
    words: WordLists
    secrets: tuple[str, ...]  # to play

    @property
    def folder(self) -> Path:
        """The folder of the model or adapter."""
        return Path(self.model.path)

    @property
    def base(self) -> ModelSettings | None:
        """Settings of the model under an adapter. None for a whole model."""
        if not self.start.adapted:
            return None
        return replace(self.model, path=self.start.name, revision=self.start.revision)
