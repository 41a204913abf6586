"""Word lists: the original ones are as published, and faulty files are told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from wordle_rl.words.lists import WordListError, WordLists, load_words, words_digest

ANSWERS_SHA = "5209b35f823f8b80f0404f863bd80df06d6a966c6eb1016d69f38badc6eed5d0"
ALLOWED_SHA = "498f38211e3bafbfd6cc824ed10537a974d502377aa92459d06ff6a5b6110bb8"


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_original_lists_have_the_published_sizes_and_digests():
    words = load_words()
    assert (len(words.answers), len(words.allowed), words.name) == (2315, 12972, "original")
    assert (words_digest(words.answers), words_digest(words.allowed)) == (ANSWERS_SHA, ALLOWED_SHA)
    assert words.allowed[words.guess_index["salet"]] == "salet"
    assert words.answers[words.answer_index["crane"]] == "crane"


def test_digest_depends_on_both_lists_and_not_on_the_name():
    one = WordLists(answers=("crane",), allowed=("crane", "slate"), name="a")
    assert one.digest == WordLists(answers=("crane",), allowed=("crane", "slate")).digest
    assert one.digest != WordLists(answers=("crane",), allowed=("crane",)).digest
    assert one.digest != WordLists(answers=("slate",), allowed=("crane", "slate")).digest


def test_text_files_are_sorted_folded_and_may_have_blank_lines_and_windows_ends(tmp_path):
    path = written(tmp_path, "mine.txt", "\ufeffslate\r\nCRANE\r\n\r\n  abbey\n")
    words = load_words(answers=path)
    assert words.answers == words.allowed == ("abbey", "crane", "slate")
    assert words.name == "mine"


def test_csv_column_is_read_by_its_name(tmp_path):
    answers = written(tmp_path, "a.csv", 'rank,word\n1,slate\n2,"crane"\n')
    allowed = written(tmp_path, "b.txt", "abbey\nslate\ncrane\n")
    words = load_words(answers=answers, allowed=allowed, column="word")
    assert words.answers == ("crane", "slate")
    assert words.allowed == ("abbey", "crane", "slate")


@pytest.mark.parametrize(
    ("name", "content", "column", "told"),
    [
        ("a.txt", "crane\nabcd\n", None, "row 2: 'abcd' has 4 characters, not 5"),
        ("a.txt", "crane\n\nабвгд\n", None, "row 3: .* letters a to z"),
        ("a.txt", "crane\nslate\nCrane\n", None, "row 3: 'crane' stands twice"),
        ("a.txt", b"crane\nsl\xffte\n", None, "row 2: not UTF-8"),
        ("a.txt", "crane\n", "word", r"words\.column applies to \.csv"),
        ("a.csv", "rank,word\n1,crane\n", "wrod", "row 1: .* rank, word, not wrod"),
        ("a.csv", "rank,word\n1,crane\n2,xx\n", "word", "row 3: 'xx' has 2"),
        ("a.csv", 'word\n"cra"ne\n', "word", "row 2: not CSV"),
        ("a.json", "[]", None, r"\.txt or \.csv"),
    ],
)
def test_faulty_file_is_told_in_one_line_with_its_row(tmp_path, name, content, column, told):
    path = written(tmp_path, name, content)
    with pytest.raises(ValueError, match=told) as caught:
        load_words(answers=path, column=column)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("answers", "allowed", "told"),
    [
        ((), ("crane",), "answers is empty"),
        (("slate", "crane"), ("crane", "slate"), "sorted and distinct"),
        (("crane", "crane"), ("crane",), "sorted and distinct"),
        (("Crane",), ("Crane",), "letters a to z"),
        (("crane",), ("slate",), "'crane' is not an allowed guess"),
    ],
)
def test_lists_that_do_not_fit_together_are_refused(answers, allowed, told):
    with pytest.raises(WordListError, match=told):
        WordLists(answers=answers, allowed=allowed)


def test_more_allowed_words_than_can_all_be_secrets_are_refused_in_one_line(monkeypatch):
    words = WordLists(answers=("crane",), allowed=("crane", "slate", "trace"), name="mine")
    monkeypatch.setattr("wordle_rl.words.lists._MOST_PAIRS", 9)
    assert words.over_allowed.answers == words.allowed
    more = WordLists(answers=("crane",), allowed=("abbey", *words.allowed), name="mine")
    with pytest.raises(WordListError, match=r"^mine, allowed: 4 possible .* too many.*at most 9$"):
        _ = more.over_allowed
