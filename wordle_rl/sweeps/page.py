"""Writes the page of a study."""

from __future__ import annotations

from pathlib import Path

from wordle_rl.runs.files import write_bytes, write_json
from wordle_rl.sweeps.comparisons import compare, compare_confirmed
from wordle_rl.sweeps.effect_table import FILE, describe_effects
from wordle_rl.sweeps.index import write_index
from wordle_rl.sweeps.plots import write_plots
from wordle_rl.sweeps.reading import read_study
from wordle_rl.sweeps.report import format_page


def write_study(folder: Path) -> Path:
    """Write README.md and the pictures of a study, and its entry in the index. Returns the page.

    Raises ValueError in one line for a folder without a study.
    """
    study = read_study(folder)
    effects = [*compare(study), *compare_confirmed(study)]
    write_json(folder / FILE, describe_effects(study, effects))
    pictures = write_plots(study, folder)
    path = folder / "README.md"
    before = path.read_text(encoding="utf-8") if path.exists() else None
    write_bytes(path, format_page(study, effects, pictures, before).encode())
    write_index(folder.resolve().parent)
    return path
