"""Writes the resolved config into a run folder."""

from __future__ import annotations

from typing import Any

from wordle_rl.runs.files import write_bytes
from wordle_rl.runs.folder import RunFolder

CONFIG = "config.yaml"  # name of the file in a run folder


def keep_config(folder: RunFolder, config: dict[str, Any]) -> None:
    """Write the resolved config that the run uses from now on."""
    from omegaconf import OmegaConf

    write_bytes(folder.path / CONFIG, OmegaConf.to_yaml(OmegaConf.create(config)).encode())
