"""The feedback table: right on every pair, and safe in its cache."""

import numpy as np
import pytest

from wordle_rl.game.feedback_table import build_table, feedback_row, feedback_table, letters_of
from wordle_rl.game.rules import feedback_code
from wordle_rl.words.lists import WordLists, load_words

SMALL = WordLists(answers=("abbey", "crane", "eerie"), allowed=("abbey", "crane", "eerie", "speed"))


def counting_oracle(guesses: np.ndarray, secret: str) -> np.ndarray:
    """Codes of guesses [n, 5] for a secret, by counting instead of taking letters away.

    A letter that is not in place is present when its copies in place, plus its earlier copies
    that are not in place, are fewer than the secret has.
    """
    target = np.frombuffer(secret.encode(), dtype=np.uint8)
    counts = np.bincount(target, minlength=256).astype(np.uint8)
    letters = np.ascontiguousarray(guesses.T)
    same = letters == target[:, None]
    codes = np.zeros(len(guesses), dtype=np.int64)
    for i in range(5):
        is_copy = letters == letters[i]
        num_placed = (is_copy & same).sum(axis=0, dtype=np.uint8)
        num_earlier = (is_copy & ~same)[:i].sum(axis=0, dtype=np.uint8)
        digit = np.where(same[i], 2, np.where(num_placed + num_earlier < counts[letters[i]], 1, 0))
        codes += digit * 3 ** (4 - i)
    return codes


def erasing_oracle(guess: str, secret: str) -> int:
    """One code by the schoolbook method: cross out letters of the secret."""
    letters, marks = list(secret), [0] * 5
    for i in range(5):
        if guess[i] == secret[i]:
            marks[i], letters[i] = 2, ""
    for i in range(5):
        if marks[i] == 0 and guess[i] in letters:
            marks[i] = 1
            letters[letters.index(guess[i])] = ""
    return int("".join(map(str, marks)), 3)


def test_table_equals_the_oracle_for_150_secrets_and_every_allowed_guess():  # row 28
    words = load_words()
    table, guesses = build_table(words), letters_of(words.allowed)
    for column in np.random.default_rng(28).choice(len(words.answers), 150, replace=False).tolist():
        expected = counting_oracle(guesses, words.answers[column])
        assert (table[:, column] == expected).all(), words.answers[column]
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 1


def test_table_game_and_both_oracles_agree_on_random_pairs(original):  # row 28
    words, draw = original.words, np.random.default_rng(3)
    for row in draw.integers(len(words.allowed), size=5_000).tolist():
        guess, column = words.allowed[row], int(draw.integers(len(words.answers)))
        secret = words.answers[column]
        code = erasing_oracle(guess, secret)
        assert original.table[row, column] == code == feedback_code(guess, secret)


def test_row_of_five_letters_that_are_no_word_equals_the_oracle():
    secrets = ["abbey", "crane", "eerie", "geese", "aaaaa"]
    for guess in ("aaaaa", "eeeee", "zzzzz", "eabee", "qeeqe"):
        expected = [erasing_oracle(guess, secret) for secret in secrets]
        assert feedback_row(guess, letters_of(secrets)).tolist() == expected


def test_second_use_of_the_table_reads_the_file_of_the_first(tmp_path):
    first = feedback_table(SMALL, cache_dir=tmp_path)
    (file,) = tmp_path.iterdir()
    stamp = file.stat().st_mtime_ns
    second = feedback_table(SMALL, cache_dir=tmp_path)
    assert file.stat().st_mtime_ns == stamp
    assert (first == second).all() and second.dtype == np.uint8 and second.shape == (4, 3)
    with pytest.raises(ValueError, match="read-only"):
        second[0, 0] = 1
    feedback_table(WordLists(answers=("crane",), allowed=("crane",)), cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_torn_cache_file_is_rebuilt_and_a_blocked_folder_only_means_no_cache(tmp_path):
    expected = feedback_table(SMALL, cache_dir=tmp_path).copy()
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for size in (0, 5, 130):
        file.write_bytes(content[:size])
        assert (feedback_table(SMALL, cache_dir=tmp_path) == expected).all()
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]  # no temporary file is left
    assert (feedback_table(SMALL, cache_dir=file / "cache") == expected).all()
