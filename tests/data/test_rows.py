"""Cells of rows: feedback in two notations, lists as text, and hostile text."""

import pytest

from wordle_rl.data.rows import BadRow, read_feedback, read_guesses, read_word
from wordle_rl.game.rules import marks_of

PAIR = ["CRANE", "C(x) R(x) A(-) N(x) E(-)"]


@pytest.mark.parametrize(
    "written", ["C(x) R(x) A(-) N(x) E(-)", "c(x)r(x)a(-)n(x)e(-)", "xx-x-", " xx-x-\n"]
)
def test_feedback_is_read_in_both_notations(written):
    assert marks_of(read_feedback("crane", written)) == "xx-x-"


@pytest.mark.parametrize(
    "written",
    ["xx-x", "xx-x?", None, ["x"] * 5, "S(x) R(x) A(-) N(x) E(-)", "C(xx) R() A(-) N(x) E(-)"],
)
def test_feedback_of_another_form_is_a_bad_row(written):
    with pytest.raises(BadRow, match="the feedback of crane cannot be read"):
        read_feedback("crane", written)


@pytest.mark.parametrize(
    "value",
    [
        str([PAIR, ("slate", "x-✓xx")]),
        '[["CRANE", "C(x) R(x) A(-) N(x) E(-)"], ["slate", "x-✓xx"]]',
        [PAIR, ["slate", "x-✓xx"]],
        [{"guess": "crane", "feedback": "xx-x-"}, {"guess": "slate", "feedback": "x-✓xx"}],
    ],
)
def test_earlier_guesses_are_read_as_lists_and_as_text(value):
    assert read_guesses(value) == [("crane", int("00101", 3)), ("slate", int("01200", 3))]


def test_no_code_in_a_cell_runs(tmp_path):
    target = tmp_path / "made"
    for text in (
        f"[open({str(target)!r}, 'w')]",
        f"__import__('os').mkdir({str(target)!r})",
        f"[[(lambda: open({str(target)!r}, 'w'))(), 'xx-x-']]",
    ):
        with pytest.raises(BadRow):
            read_guesses(text)
    assert not target.exists()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 400 + "]" * 400,
        "-" * 9000 + "1",
        "[['crane', 'xx-x-']] * 10**9",
        "{'crane': 'xx-x-'}",
        "[[['crane', 'xx-x-']]]",
        "[['crane', 'xx-x-'], None]",
    ],
)
def test_hostile_and_broken_lists_are_bad_rows(text):
    with pytest.raises(BadRow) as error:
        read_guesses(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("word", ["", "cranes", "сrane", "cr4ne", None, ["crane"]])
def test_only_five_ascii_letters_are_a_word(word):
    assert read_word("secret", " CRANE\n") == "crane"
    with pytest.raises(BadRow, match="the secret must have five letters, not "):
        read_word("secret", word)
