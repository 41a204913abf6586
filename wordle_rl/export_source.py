"""What export.py reads of a run: a verified checkpoint, and everything that games with it need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from wordle_rl.build import resolve
from wordle_rl.build_parts import build_backend_settings, build_model_settings, build_style
from wordle_rl.earlier_run import read_saved_config
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import (
    MAIN,
    BackendSettings,
    LightningSettings,
    MlxSettings,
    ModelSettings,
)
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, check_choice, instantiate
from wordle_rl.runs.paths import TRAIN
from wordle_rl.words.lists import WordLists
from wordle_rl.words.settings import WordSettings
from wordle_rl.words.splits import Splits

CHECKPOINTS = ("best", "last", "start")


@dataclass(frozen=True, kw_only=True)
class ExportSource:
    """A checkpoint of a run, and how its model is asked."""

    run: RunFolder
    step: int  # of the checkpoint
    model: ModelSettings  # its path is the checkpoint's model folder
    start: Mapping[str, Any]  # the model settings that the run was started with
    backend: BackendSettings  # of the run, in float32 on one device
    form: str
    style: PromptStyle
    sampling: Sampling
    rules: Rules
    words: WordLists
    splits: Splits

    @property
    def folder(self) -> Path:
        """The folder of the model or adapter."""
        return Path(self.model.path)

    @property
    def held_out(self) -> tuple[str, ...]:
        """Secrets to play: validation secrets, or answers where none is held out."""
        return self.splits.val or self.words.answers

    def open(self, folder: str | Path, revision: str = MAIN) -> ModelSettings:
        """Settings that load another model in the place of the checkpoint's."""
        return replace(self.model, path=str(folder), revision=revision)


def read_source(run: RunFolder, checkpoint: str) -> ExportSource:
    """Verify a checkpoint of a run, and read its settings. Raises ValueError in one line.

    checkpoint: one of CHECKPOINTS.
    """
    check_choice("checkpoint", checkpoint, CHECKPOINTS)
    saved = read_saved_config(run)
    store = CheckpointStore(run.checkpoints, read_only=True)
    path = {"best": store.best, "last": store.latest, "start": store.start}[checkpoint]()
    if path is None:
        status = run.manifest().get("status")
        raise ConfigError(
            f"{store.folder}: there is no {checkpoint} checkpoint, and the run is {status}; "
            f"continue it with {TRAIN} resume={run.path}"
        )
    step = store.load(path).step
    if checkpoint == "best" and step == 0:
        raise ConfigError(
            f"{run.path}: the best checkpoint is the run's own start; use checkpoint=last for what "
            "it learnt, or checkpoint=start for the start"
        )
    return _build(run, saved, path / "model", step)


def _build(run: RunFolder, saved: DictConfig, folder: Path, step: int) -> ExportSource:
    config: dict[str, Any] = resolve(saved)
    own = {"path": str(folder), "revision": MAIN, "shape": {}, "lora": None, "quantize": None}
    model = build_model_settings({**config["model"], **own})
    listed: WordSettings = instantiate("words", config["words"], WordSettings)
    words, splits = listed.load()
    rules: Rules = instantiate("rules", config["rules"], Rules)
    return ExportSource(
        run=run,
        step=step,
        model=model,
        start=config["model"],
        backend=_build_backend(config["backend"], model),
        form=saved.rollout.form,
        style=build_style(config, rules),
        sampling=instantiate("sampling", config["sampling"], Sampling),
        rules=rules,
        words=words,
        splits=splits,
    )


def _build_backend(node: Any, model: ModelSettings) -> BackendSettings:
    """The run's backend as the export computes: in float32, on the CPU if it is torch's."""
    backend = build_backend_settings(node, model)
    if isinstance(backend, LightningSettings):
        return replace(backend, precision="fp32", accelerator="cpu", devices=1)
    assert isinstance(backend, MlxSettings)
    return replace(backend, precision="fp32")
