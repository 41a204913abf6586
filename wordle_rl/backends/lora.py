"""Checks of model.lora that do not depend on the backend."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wordle_rl.policy.settings import LM_HEAD, LoraSettings
from wordle_rl.runs.instantiate import ConfigError


def check_loaded_adapter(settings: LoraSettings, *, rank: int, alpha: float) -> None:
    """Raise ConfigError when the settings ask for another rank or alpha than a loaded adapter's.

    alpha may be off by rounding, because mlx-lm stores alpha / rank.
    """
    for name, loaded, asked in (("rank", rank, settings.rank), ("alpha", alpha, settings.alpha)):
        if abs(loaded - asked) > 1e-6 * abs(asked):
            raise ConfigError(f"model.lora.{name} must be {loaded}, as in model.path, not {asked}")


def choose_layers(targets: str | list[str], layers: Sequence[str]) -> list[str]:
    """Choose the linear layers that model.lora.targets names, without the language-model head.

    layers: dotted names of all linear layers. targets: a list of the ends of names, or a pattern
    for whole names. Raises ConfigError if the pattern, or an entry of the list, fits no layer.
    """
    layers = [layer for layer in layers if layer.rpartition(".")[2] != LM_HEAD]
    if targets == "all-linear":
        return layers
    if isinstance(targets, str):
        chosen = [layer for layer in layers if re.fullmatch(targets, layer)]
        wrong = [] if chosen else [targets]
    else:
        chosen = [layer for layer in layers if any(_ends_with(layer, t) for t in targets)]
        wrong = [t for t in targets if not any(_ends_with(layer, t) for layer in layers)]
    if wrong:
        names = ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
        raise ConfigError(f"model.lora.targets must be of {names}, or all-linear, not {wrong[0]!r}")
    return chosen


def _ends_with(layer: str, target: str) -> bool:
    return f".{layer}".endswith(f".{target}")
