"""The config as a command composes it, and what conf/ offers."""

from __future__ import annotations

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from wordle_rl.cli import quoted
from wordle_rl.runs.paths import ROOT

GROUPS = sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir())
OPTIONS = {
    group: sorted(path.stem for path in (ROOT / "conf" / group).glob("*.yaml")) for group in GROUPS
}


def composed(*overrides: str, name: str = "config") -> DictConfig:
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose(name, overrides=[quoted(override) for override in overrides])
