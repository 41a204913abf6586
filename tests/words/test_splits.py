"""Train, validation and test secrets."""

from __future__ import annotations

import hashlib

import pytest

from wordle_rl.words.lists import WordLists, load_words
from wordle_rl.words.splits import Splits, split_secrets

TEN = ("abbey", "cabin", "dairy", "eager", "fable", "gauge", "habit", "icing", "jaunt", "kayak")


def lists(answers: tuple[str, ...]) -> WordLists:
    return WordLists(answers=answers, allowed=answers)


def test_original_answers_split_into_315_test_200_validation_and_1800_training_secrets():
    words = load_words()
    splits = split_secrets(words)
    assert [len(splits.secrets(w)) for w in ("test", "val", "train")] == [315, 200, 1800]
    assert sorted(splits.secrets("all")) == list(words.answers)  # hence disjoint


def test_counts_and_their_shares_give_the_same_split():
    words = load_words()
    assert split_secrets(words, test=315, val=200).digest == split_secrets(words).digest


def test_test_secrets_are_the_first_by_hash():
    ordered = sorted(TEN, key=lambda word: hashlib.sha256(word.encode()).hexdigest())
    splits = split_secrets(lists(TEN), test=2, val=0.3)
    assert splits.test == tuple(ordered[:2])
    assert splits.val == tuple(ordered[2:5])
    assert splits.train == tuple(ordered[5:])


def test_small_lists_keep_at_least_one_secret_in_each_part():
    splits = split_secrets(lists(TEN[:3]))
    assert [len(splits.secrets(w)) for w in ("test", "val", "train")] == [1, 1, 1]


def test_list_that_leaves_nothing_to_train_on_is_refused():
    with pytest.raises(ValueError, match=r"leave a secret to train on: 1 \+ 1 of 2"):
        split_secrets(lists(TEN[:2]))
    with pytest.raises(ValueError, match=r"5 \+ 5 of 10"):
        split_secrets(lists(TEN), test=5, val=0.5)


@pytest.mark.parametrize("size", [0, -1, 0.0, 1.0, 1.5, True, float("nan"), "2", None])
def test_sizes_out_of_range_are_refused_with_their_name(size):
    with pytest.raises(ValueError, match=r"words\.test must be"):
        split_secrets(lists(TEN), test=size, val=1)
    with pytest.raises(ValueError, match=r"words\.val must be"):
        split_secrets(lists(TEN), test=1, val=size)


def test_digest_tells_who_is_where_and_not_in_which_order():
    splits = Splits(train=("abbey", "cabin"), val=("dairy",), test=("eager",))
    same = Splits(train=("cabin", "abbey"), val=("dairy",), test=("eager",))
    moved = Splits(train=("abbey",), val=("dairy", "cabin"), test=("eager",))
    swapped = Splits(train=("abbey", "cabin"), val=("eager",), test=("dairy",))
    assert splits.digest == same.digest
    assert len({splits.digest, moved.digest, swapped.digest}) == 3


def test_secret_in_two_parts_is_refused():
    with pytest.raises(ValueError, match="disjoint"):
        Splits(train=("abbey",), val=("abbey",), test=("cabin",))
    with pytest.raises(ValueError, match=r"splits\.val must hold"):
        Splits(train=("abbey",), val=(), test=("cabin",))


def test_unknown_part_is_refused():
    with pytest.raises(ValueError, match="train, val, test or all, not 'dev'"):
        split_secrets(lists(TEN)).secrets("dev")  # type: ignore[arg-type]
