"""The line in which a run says what it chose, kept in its manifest for when it is resumed."""

from __future__ import annotations

from collections.abc import Mapping

import yaml
from hydra.core.hydra_config import HydraConfig

from wordle_rl.runs.paths import CONF


def hydra_choices() -> dict[str, str]:
    """The option of each group in this process; empty where Hydra did not start it."""
    if not HydraConfig.initialized():
        return {}
    chosen = HydraConfig.get().runtime.choices
    return {str(group): str(option) for group, option in chosen.items() if option is not None}


def describe_choices(choices: Mapping[str, str]) -> str:
    """The options that differ from those of conf/config.yaml, whoever chose them."""
    defaults = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["defaults"]
    usual = {group: option for entry in defaults if isinstance(entry, dict)
             for group, option in entry.items()}  # fmt: skip
    changed = (
        f"{group}={option}"
        for group, option in choices.items()
        if "/" not in group and usual.get(group) != option
    )
    return "choices: " + (" ".join(changed) or "the defaults of conf/config.yaml")
