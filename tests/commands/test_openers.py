"""wordle-rl openers: the published entropies of first guesses."""

import pytest

from wordle_rl import __main__ as command


def rows_of(capsys, *arguments: str) -> list[list[str]]:
    command.run(["openers", *arguments])
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_the_best_first_guesses_over_the_answers_are_the_published_ones(capsys):
    head, _, _, *rows = rows_of(capsys, "--top", "3")
    assert "2,315" in head
    assert rows == [["1", "SOARE", "5.886"], ["2", "ROATE", "5.883"], ["3", "RAISE", "5.878"]]
    assert rows_of(capsys, "CRANE")[3:] == [["31", "CRANE", "5.743"]]


@pytest.mark.slow
def test_over_all_allowed_words_tares_is_the_best(capsys):
    head, _, _, row = rows_of(capsys, "--words", "allowed", "--top", "1")
    assert "12,972" in head and row == ["1", "TARES", "6.194"]


def test_lists_of_the_users_own_and_words_that_are_not_allowed(tmp_path, capsys):
    answers = tmp_path / "mine.txt"
    answers.write_text("crane\nslate\nabbey\nquiet\n")
    rows = rows_of(capsys, "--answers", str(answers))[3:]
    assert [row[2] for row in rows] == ["2.000"] * 3 + ["1.500"]
    for word, text in ("zzzzz", "must be an allowed guess, not zzzzz"), ("foo", "five letters"):
        with pytest.raises(SystemExit):
            command.run(["openers", word])
        assert text in capsys.readouterr().err
