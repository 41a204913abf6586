"""Word lists: the original ones are as published, and faulty files are told in one line."""

from pathlib import Path

import pytest

from wordle_rl.words.lists import WordLists, load_words, words_digest

ANSWERS_SHA = "5209b35f823f8b80f0404f863bd80df06d6a966c6eb1016d69f38badc6eed5d0"
ALLOWED_SHA = "498f38211e3bafbfd6cc824ed10537a974d502377aa92459d06ff6a5b6110bb8"


def write_list(folder: Path, name: str, text: str | bytes) -> Path:
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
    words = WordLists(answers=("crane",), allowed=("crane", "slate"), name="a")
    assert words.digest == WordLists(answers=("crane",), allowed=("crane", "slate")).digest
    assert words.digest != WordLists(answers=("crane",), allowed=("crane",)).digest
    assert words.digest != WordLists(answers=("slate",), allowed=("crane", "slate")).digest


def test_text_files_are_sorted_folded_and_may_have_blank_lines_and_windows_ends(tmp_path):
    path = write_list(tmp_path, "mine.txt", "\ufeffslate\r\nCRANE\r\n\r\n  abbey\n")
    words = load_words(answers=path)
    assert words.answers == words.allowed == ("abbey", "crane", "slate")


def test_csv_column_is_read_by_its_name(tmp_path):
    answers = write_list(tmp_path, "a.csv", 'rank,word\n1,slate\n2,"crane"\n')
    allowed = write_list(tmp_path, "b.txt", "abbey\nslate\ncrane\n")
    words = load_words(answers=answers, allowed=allowed, column="word")
    assert words.answers == ("crane", "slate")
    assert words.allowed == ("abbey", "crane", "slate")


@pytest.mark.parametrize(
    ("name", "content", "column", "told"),
    [
        ("a.txt", "crane\nabcd\n", None, "has 'abcd', not five letters a to z"),
        ("a.txt", "crane\n\nабвгд\n", None, "not five letters a to z"),
        ("a.txt", "crane\nslate\nCrane\n", None, "row 3: has 'crane' twice, first in row 1"),
        ("a.csv", "word\ncrane\nCRANE\n", "word", "row 3: has 'crane' twice, first in row 2"),
        ("a.csv", "aback\ncrane\n", None, "if that is a word, and .* name it .txt; if it is the"),
        ("a.txt", b"crane\nsl\xffte\n", None, "row 2: not UTF-8"),
        ("a.csv", "rank,word\n1,crane\n", "wrod", "must be rank, word, not wrod"),
        ("a.txt", "\n", None, "answers is empty"),
    ],
)
def test_a_faulty_file_is_told_in_one_line(tmp_path, name, content, column, told):
    path = write_list(tmp_path, name, content)
    with pytest.raises(ValueError, match=told) as error:
        load_words(answers=path, column=column)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_the_original_games_two_files_without_a_common_word_are_added_up(tmp_path, capsys):
    answers = write_list(tmp_path, "answers.txt", "crane\nslate\n")
    allowed = write_list(tmp_path, "guesses.txt", "aahed\nzymic\n")
    words = load_words(answers=answers, allowed=allowed)
    assert words.answers == ("crane", "slate")
    assert words.allowed == ("aahed", "crane", "slate", "zymic")
    note = f"note: no answer is in words.allowed={allowed}, so the 4 words of both files"
    assert note in capsys.readouterr().err
    write_list(tmp_path, "guesses.txt", "aahed\nslate\n")
    with pytest.raises(ValueError, match="answer 'crane' is not an allowed guess"):
        load_words(answers=answers, allowed=allowed)


def test_lists_of_a_program_are_sorted_and_have_each_word_once():
    for words, fault in (("slate", "crane"), "is not sorted"), (("crane",) * 2, "'crane' twice"):
        with pytest.raises(ValueError, match=fault):
            WordLists(answers=words, allowed=words)
