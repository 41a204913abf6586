"""Exports a run's model: python -m wordle_rl.export run=outputs/<run> format=peft|merged|mlx

peft: an adapter that peft loads over its base. merged: whole weights that transformers loads.
mlx: whole weights that mlx-lm loads. An adapter is merged into them. The folder also gets the
tokenizer and a model card. Before it gets its name, the written weights are compared with the
trained ones.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import dataclasses
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wordle_rl import export_files
from wordle_rl.backends import need_mlx
from wordle_rl.export_check import (
    Change,
    check_change,
    measure_change,
    play_probe,
    score_base,
    score_export,
)
from wordle_rl.export_settings import ExportSettings
from wordle_rl.export_source import ExportSource, read_source
from wordle_rl.model_card import Card, find_start, write_card
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.files import sync_folder
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.listing import find_run
from wordle_rl.runs.paths import ROOT, module_command

_USAGE = f"""\
{module_command("export")} run=<folder> format=peft|merged|mlx [key=value ...]

run=        folder of the run
format=     peft: the adapter. merged: whole weights for transformers. mlx: for mlx-lm
output=     new folder; default: a folder in the run with the name of the format
checkpoint= best, last or start; default: best
precision=  auto, bfloat16, float16 or float32; default: auto, the base's own precision"""


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if {"-h", "--help"} & set(given):
        print(_USAGE)
        return
    with user_errors():
        settings = read_settings(given)
        folder, written, change = export(settings)
    what = "adapter" if settings.format == "peft" else f"{written} weights"
    print(f"{what}: {change.describe()}\n{folder}")


def read_settings(arguments: Sequence[str]) -> ExportSettings:
    """The settings of a command line of key=value arguments. Raises ConfigError."""
    given: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise ConfigError(f"settings are given as key=value, not {argument!r}; see --help")
        if key in given:
            raise ConfigError(f"{key} must be given once, not twice")
        given[key] = value
    names = [field.name for field in dataclasses.fields(ExportSettings)]
    if unknown := [key for key in given if key not in names]:
        raise ConfigError(f"there is no setting {unknown[0]}; the settings are {', '.join(names)}")
    for key, value in (("run", "outputs/<run>"), ("format", "peft, merged or mlx")):
        if not given.get(key):
            raise ConfigError(f"{key} must be given: {key}={value}")
    target = {"_target_": f"{ExportSettings.__module__}.ExportSettings"}
    return instantiate("", {**target, **given}, ExportSettings)


def export(settings: ExportSettings) -> tuple[Path, str, Change]:
    """Write the folder. Returns it, the precision of its weights, and how far they are off.

    The folder appears whole or not at all. Raises ValueError in one line.
    """
    run = find_run(settings.run, "run", ROOT, ROOT / "outputs")
    target = ROOT / settings.output if settings.output else run.path / settings.format
    if target.exists():
        raise ConfigError(f"output must be a new folder, and {target} exists: name another one")
    if not target.parent.is_dir():
        raise ConfigError(f"output must be in a folder that exists, not in {target.parent}")
    source = read_source(run, settings.checkpoint)
    check_format(source, settings.format)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as room:
        folder = Path(room) / "model"
        precision = _write(source, folder, settings)
        change = _compare(source, folder, settings.format)
        check_change(change, precision)
        write_card(
            folder,
            Card(source=source, form=settings.format, precision=precision, change=change),
        )
        for written in folder.iterdir():
            with open(written, "rb") as content:
                os.fsync(content.fileno())
        os.rename(folder, target)
        sync_folder(target.parent)
    return target, precision, change


def check_format(source: ExportSource, form: str) -> None:
    """Raise ConfigError for a format that the run's model or this machine lacks."""
    from wordle_rl.backends.adapter_conversion import is_adapter

    if form == "peft" and not is_adapter(source.folder):
        raise ConfigError(
            "format must be merged or mlx for a run without model.lora, not peft: it trained all "
            "weights, and there is no adapter"
        )
    if form == "mlx":
        with need_mlx():
            from wordle_rl.backends.mlx import merge  # noqa: F401


def _write(source: ExportSource, folder: Path, settings: ExportSettings) -> str:
    """Write the model. Returns the precision of its weights."""
    if settings.format == "peft":
        return export_files.write_adapter(source.folder, folder)
    if settings.format == "merged":
        return export_files.write_merged(source.folder, folder, settings.precision)
    from_mlx = source.backend.name == "mlx"
    return export_files.write_mlx(source.folder, folder, settings.precision, from_mlx=from_mlx)


def _compare(source: ExportSource, folder: Path, form: str) -> Change:
    """Compare the written model with the trained one. Raises ConfigError if it cannot be read."""
    probe = play_probe(source)
    start = find_start(source)
    base = score_base(source, probe, start.name, start.revision) if start.adapted else None
    return measure_change(probe, score_export(source, probe, folder, form), base)


if __name__ == "__main__":
    run_plain(main)
