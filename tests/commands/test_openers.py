"""The openers command: published ranks, and its file."""

from __future__ import annotations

import pandas as pd
import pytest

from wordle_rl.__main__ import run


def test_the_best_first_words_are_the_published_ones(tmp_path, capsys):
    run(["openers", "--csv", f"{tmp_path}/there/ranks.csv"])
    assert capsys.readouterr().out.splitlines()[2].split() == ["1", "soare", "5.885960", "0"]
    ranked = pd.read_csv(tmp_path / "there" / "ranks.csv")
    assert list(ranked.word[:5]) == ["soare", "roate", "raise", "raile", "reast"]
    assert len(ranked) == 12_972 and ranked.answer.sum() == 2_315
    best = ranked[ranked.answer == 1].iloc[0]
    assert best.word == "raise" and best.bits == pytest.approx(5.878, abs=5e-4)
    order = list(zip(-ranked.bits, ranked.word, strict=True))
    assert order == sorted(order), "ties go by the alphabet"
