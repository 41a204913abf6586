"""Writes a trained model into a new folder, in the form of another library.

source: a checkpoint's model folder, with a whole model, or an adapter of PEFT or mlx-lm. Each
writer also copies the tokenizer and the record of the model's stages, and returns its precision.
"""

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import BackendSettings, ModelSettings
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.lineage import base_of, stages_of, write_base, write_stages
from wordle_rl.words.lists import WordLists

ExportFormat = Literal["peft", "merged", "mlx"]


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


def write(source: Path, target: Path, form: ExportFormat, precision: str) -> str:
    """Write a model in one of the formats. Raises ConfigError for one that it cannot have."""
    from wordle_rl.backends.adapters import is_adapter, read_adapter_form

    if form == "peft":
        if not is_adapter(source):
            raise ConfigError(
                "format must be merged or mlx for a run without model.lora, not peft: it trained "
                "all weights, and there is no adapter"
            )
        return _write_adapter(source, target)
    if form == "merged":
        return _write_merged(source, target, precision)
    from wordle_rl.backends.mlx.save import merge_model

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".merged-") as room:
        folder = source
        if is_adapter(source) and read_adapter_form(source) == "peft":
            folder = Path(room) / "merged"
            precision = _write_merged(source, folder, precision)
        dtype = merge_model(folder, target, precision)
    write_stages(target, stages_of(source))
    return dtype


def _write_adapter(source: Path, target: Path) -> str:
    """Write an adapter in PEFT's form."""
    from wordle_rl.backends.adapters import ADAPTER, FILES, convert_adapter, read_adapter_form
    from wordle_rl.backends.loading import VALUE_HEAD

    if read_adapter_form(source) == "mlx":
        from wordle_rl.backends.mlx.load import find_base

        base = find_base(source)
        if "quantization" in json.loads((base / "config.json").read_bytes()):
            raise ConfigError(
                f"format must be mlx for an adapter on {base.name}, which MLX quantised: torch "
                "cannot read that base; the adapter's folder in place of the run, with --base, "
                "puts it on another one"
            )
        convert_adapter(source, target)
    else:
        target.mkdir(parents=True)
        for name in (ADAPTER, FILES["peft"]):
            shutil.copy(source / name, target)
        write_stages(target, stages_of(source))
        write_base(target, base_of(source))
    excludes = ("README.md", VALUE_HEAD, ADAPTER, *FILES.values())
    for file in sorted(source.iterdir()):  # the tokenizer
        if file.is_file() and file.name not in excludes and not (target / file.name).exists():
            shutil.copy(file, target)
    return "float32"


def _write_merged(source: Path, target: Path, precision: str) -> str:
    """Write whole weights for transformers, the adapter in them; auto keeps the precision."""
    from wordle_rl.backends.adapters import is_adapter, read_adapter_form
    from wordle_rl.backends.torch.load import merge_model

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".peft-") as room:
        folder = source
        if is_adapter(source) and read_adapter_form(source) == "mlx":
            folder = Path(room) / "adapter"
            _write_adapter(source, folder)
        dtype = merge_model(folder, target, precision)
    write_stages(target, stages_of(source))
    return dtype
