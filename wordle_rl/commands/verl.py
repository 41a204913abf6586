"""Writes what verl needs to train on our games, and checks it again before a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT

_OWN = ("output", "check")  # settings of this command


def verl(
    settings: Annotated[
        list[str],
        typer.Argument(metavar="key=value", help="output=<folder> or check=<folder>; as train.py"),
    ],
) -> None:
    """Write what verl needs to train on our games.

    Settings are those of train.py, such as model=qwen3b reward=phase2. The folder gets train, val
    and test as Parquet, the agent loop, and train.sh, which starts verl 0.9.1 with rollouts by
    vLLM. Each choice that verl cannot follow is printed. check=<folder> reads such a folder again
    and refuses files that were changed; train.sh does that first. See docs/VERL.md.
    """
    own, others = split_arguments(settings)
    for line in check(own["check"], others) if "check" in own else write(own, others):
        print(line)


def split_arguments(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """This command's own settings, and those of train.py. Raises ConfigError."""
    own: dict[str, str] = {}
    settings = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in _OWN:
            settings.append(argument)
            continue
        if key in own:
            raise ConfigError(f"{key} must be given once, not twice")
        if not equals or not value:
            raise ConfigError(f"{key} must name a folder: {key}=<folder>")
        own[key] = value
    return own, settings


def check(folder: str, settings: Sequence[str]) -> list[str]:
    """Check a folder's files. Returns what to print."""
    if settings:
        raise ConfigError(f"check takes no other settings, not {settings[0]}")
    from wordle_rl.adapters.verl.files import check_folder
    from wordle_rl.game.feedback_table import cache_folder

    counts = check_folder(ROOT / folder, cache_folder() / "datasets")
    return [f"{folder}: {_describe(counts)}, as they were written"]


def write(own: dict[str, str], settings: Sequence[str]) -> list[str]:
    """Write a folder for verl. Returns what to print."""
    if "output" not in own:
        raise ConfigError("output must be given: output=<folder>")
    from wordle_rl.adapters.api import compose_config
    from wordle_rl.adapters.verl.files import SCRIPT, check_output, write_folder
    from wordle_rl.adapters.verl.keys import map_choices
    from wordle_rl.commands.build import build_experiment, resolve

    setup = build_experiment(resolve(compose_config("config", list(settings))))
    keys, lines = map_choices(setup)
    folder = ROOT / own["output"]
    replaces = check_output(folder)
    counts = write_folder(folder, setup, keys)
    return [
        f"{folder}: {_describe(counts)}",
        *([f"replaced the files that an earlier command wrote into {folder}"] if replaces else []),
        f"splits: {setup.splits.digest}",
        *lines,
        f"start: bash {folder / SCRIPT}",
    ]


def _describe(counts: dict[str, int]) -> str:
    from wordle_rl.adapters.verl.game import PARTS

    return ", ".join(f"{counts[part]:,} {part}" for part in PARTS) + " rows"
