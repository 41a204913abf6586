"""The openers command: published scores, its files, and its errors."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path

import pytest

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.rules import feedback_code
from wordle_rl.openers import Opener, main, name_csv, openers
from wordle_rl.words.lists import WordLists, load_words


@pytest.fixture(scope="module")
def scored() -> list[Opener]:
    words = load_words()
    return openers(words, build_table(words))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORDLE_RL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers.txt").write_text("crane\nslate\neerie\n")
    return tmp_path


def test_five_best_first_words_are_the_published_ones(scored):
    assert [o.word for o in scored[:5]] == ["soare", "roate", "raise", "raile", "reast"]
    assert scored[0].bits == pytest.approx(5.886, abs=5e-4)


def test_best_first_word_among_the_answers_is_raise_with_its_published_bits(scored):
    best = next(o for o in scored if o.answer)
    assert best.word == "raise"
    assert best.bits == pytest.approx(5.878, abs=5e-4)
    assert best.remaining == pytest.approx(61.00, abs=0.01)


def test_every_allowed_word_is_scored_once(scored):
    words = load_words()
    assert sorted(o.word for o in scored) == list(words.allowed)
    assert sum(o.answer for o in scored) == len(words.answers)


def test_scores_are_the_definition_and_ties_go_by_the_alphabet():
    answers = ("crane", "crate", "eerie", "grate", "slate")
    words = WordLists(answers=answers, allowed=tuple(sorted((*answers, "fuzzy", "jumpy"))))
    scored = openers(words, build_table(words))
    for o in scored:
        counts = Counter(feedback_code(o.word, secret) for secret in answers).values()
        assert o.bits == pytest.approx(-sum(c / 5 * math.log2(c / 5) for c in counts), abs=1e-12)
        assert o.remaining == pytest.approx(sum(c * c for c in counts) / 5)
    order = [(-round(o.bits, 9), o.word) for o in scored]
    assert order == sorted(order)
    assert [o.word for o in scored[-2:]] == ["fuzzy", "jumpy"]  # both tell nothing


def test_command_prints_the_best_and_writes_all_of_them(folder, capsys):
    assert main(["--answers", "answers.txt", "--top", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:3] == ["rank", "word", "bits"]
    assert printed[1].split() == ["1", "crane", "1.585", "1.00", "yes"]
    assert printed[2].split()[0] == "2" and not printed[3].startswith("   3")
    [path] = (folder / "outputs").iterdir()
    assert path.name.startswith("openers_"), "openers.csv is for the original lists"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert rows[0] == {
        "rank": "1", "word": "crane", "bits": "1.584963", "remaining": "1.0000", "answer": "1",
    }  # fmt: skip


def test_each_pair_of_word_lists_has_a_file_of_its_own(folder):
    words = load_words(answers="answers.txt")
    other = load_words(answers="answers.txt", allowed="answers.txt")
    assert name_csv(words, original=True).name == "openers.csv"
    assert name_csv(words, original=False) == name_csv(other, original=False)
    (folder / "more.txt").write_text("crane\nslate\nvixen\n")
    assert name_csv(load_words(answers="more.txt"), original=False) != name_csv(
        words, original=False
    )


def test_command_reads_csv_lists_and_writes_where_it_is_told(folder, capsys):
    (folder / "list.csv").write_text("id,word\n1,crane\n2,slate\n")
    arguments = ["--answers", "list.csv", "--column", "word", "--csv", "there/scores.csv"]
    assert main(arguments) == 0
    assert (folder / "there" / "scores.csv").read_text().count("\n") == 3
    assert "2 in there/scores.csv" in capsys.readouterr().out.replace("all ", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--answers", "nope.txt"], "nope.txt: no such file"),
        (["--answers", "answers.txt", "--column", "word"], "--column applies to .csv files"),
        (["--allowed", "answers.txt"], "--allowed needs --answers"),
        (["--top", "0"], "--top must be at least 1, not 0"),
        (["--top", "many"], "--top"),
        (["--tops", "3", "x"], "unrecognized"),
        (["--answers", "answers.txt", "--csv", "answers.txt/x.csv"], "cannot be written"),
    ],
)
def test_error_is_one_line_and_exit_code_2(folder, capsys, arguments, told):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert told in error and error.count("\n") == 1
