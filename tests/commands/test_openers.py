"""The openers command: published scores, its file, and its errors."""

from __future__ import annotations

import math
from collections import Counter

import pandas as pd
import pytest

from wordle_rl.__main__ import run
from wordle_rl.commands.openers import score_openers
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.rules import feedback_code
from wordle_rl.words.lists import WordLists, load_words


@pytest.fixture(scope="module")
def scored() -> pd.DataFrame:
    words = load_words()
    return score_openers(words, build_table(words))


def test_the_best_first_words_are_the_published_ones(scored):
    assert list(scored.word[:5]) == ["soare", "roate", "raise", "raile", "reast"]
    assert scored.bits[1] == pytest.approx(5.886, abs=5e-4)
    best = scored[scored.answer].iloc[0]
    assert best.word == "raise"
    assert (best.bits, best.remaining) == pytest.approx((5.878, 61.00), abs=0.01)
    words = load_words()
    assert sorted(scored.word) == list(words.allowed) and scored.answer.sum() == len(words.answers)


def test_scores_are_the_definition_and_ties_go_by_the_alphabet():
    answers = ("crane", "crate", "eerie", "grate", "slate")
    words = WordLists(answers=answers, allowed=tuple(sorted((*answers, "fuzzy", "jumpy"))))
    scored = list(score_openers(words, build_table(words)).itertuples())
    for o in scored:
        counts = Counter(feedback_code(o.word, secret) for secret in answers).values()
        assert o.bits == pytest.approx(-sum(c / 5 * math.log2(c / 5) for c in counts), abs=1e-12)
        assert o.remaining == pytest.approx(sum(c * c for c in counts) / 5)
    order = [(-round(o.bits, 9), o.word) for o in scored]
    assert order == sorted(order)
    assert [o.word for o in scored[-2:]] == ["fuzzy", "jumpy"]  # both tell nothing


def test_the_command_prints_the_best_and_writes_all_of_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORDLE_RL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "list.csv").write_text("id,word\n1,crane\n2,slate\n3,eerie\n")
    answers = ["--answers", f"{tmp_path}/list.csv", "--column", "word"]
    run(["openers", *answers, "--top", "2", "--csv", f"{tmp_path}/there/scores.csv"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[2].split() == ["1", "crane", "1.585", "1.0", "True"]
    assert printed[3].split()[0] == "2" and "best possible secret: crane" in printed[4]
    rows = (tmp_path / "there" / "scores.csv").read_text().splitlines()
    assert rows[:2] == ["rank,word,bits,remaining,answer", "1,crane,1.584963,1.0,1"]
    assert len(rows) == 4


def test_an_error_is_one_line_and_exit_code_2(capsys):
    with pytest.raises(SystemExit, match="2"):
        run(["openers", "--answers", "nope.txt"])
    told = capsys.readouterr().err
    assert "nope.txt: no such file" in told and told.count("\n") == 1
