"""Every verdict of the shipped studies is recomputed from results.csv and games.csv.xz."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.analysis import judge_study

EFFECTS = json.loads(Path(__file__).with_name("effects.json").read_text())  # computed in 2026-11
QUICK = "algorithm"  # the largest; its eleven comparisons see a wrong correction by Holm


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == QUICK else [pytest.mark.slow]) for n in EFFECTS],
)
def test_a_shipped_study_keeps_its_verdicts(name):
    for found, kept in zip(judge_study(ROOT / "sweeps" / name), EFFECTS[name], strict=True):
        for key, value in kept.items():
            same = pytest.approx(value, abs=1e-6) if isinstance(value, float) else value
            assert getattr(found, key) == same, (found.name, key)


def test_all_57_comparisons_are_kept():
    assert sum(map(len, EFFECTS.values())) == 57
    assert sorted(EFFECTS) == sorted(p.parent.name for p in (ROOT / "sweeps").glob("*/study.json"))
