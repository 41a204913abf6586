"""What a study found: the effects of its comparisons, from results.csv and games.csv.xz alone."""

from __future__ import annotations

from pathlib import Path

from wordle_rl.sweeps.comparisons import compare, compare_confirmed
from wordle_rl.sweeps.effects import Effect
from wordle_rl.sweeps.reading import read_study


def judge_study(folder: Path) -> list[Effect]:
    """The effects of a study's comparisons, the one with fresh seeds last. Raises ValueError."""
    study = read_study(folder)
    return [*compare(study), *compare_confirmed(study)]
