"""Train, validation and test secrets, and which of them a run may train on."""

import hashlib
from collections.abc import Iterable
from typing import Any

import pytest

from wordle_rl.words.lists import WordLists, load_words
from wordle_rl.words.splits import Splits, WordSettings, split_secrets

TEN = ("abbey", "cabin", "dairy", "eager", "fable", "gauge", "habit", "icing", "jaunt", "kayak")


def lists(answers: tuple[str, ...]) -> WordLists:
    return WordLists(answers=answers, allowed=answers)


def by_hash(words: Iterable[str]) -> list[str]:
    return sorted(words, key=lambda word: hashlib.sha256(word.encode()).hexdigest())


def test_original_answers_split_into_315_test_200_validation_and_1800_training_secrets():
    words = load_words()
    splits = split_secrets(words)
    assert [len(splits.secrets(w)) for w in ("test", "val", "train")] == [315, 200, 1800]
    assert sorted(splits.secrets("all")) == list(words.answers)  # hence disjoint
    assert split_secrets(words, test=315, val=200).digest == splits.digest


def test_test_secrets_are_the_first_by_hash():
    splits = split_secrets(lists(TEN), test=2, val=0.28)  # 2.8 secrets are 3
    assert splits.test == tuple(by_hash(TEN)[:2])
    assert splits.val == tuple(by_hash(TEN)[2:5])
    assert splits.train == tuple(by_hash(TEN)[5:])
    small_splits = split_secrets(lists(TEN[:3]))
    assert len(small_splits.test) == len(small_splits.val) == len(small_splits.train) == 1


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"test": 5, "val": 0.5}, r"leave a secret to train on: 5 \+ 5 of 10"),
        ({"test": 0, "val": 1}, r"words\.test must be"),
        ({"test": 1, "val": 1.0}, r"words\.val must be"),
        ({"test": 1, "val": float("nan")}, r"words\.val must be"),
    ],
)
def test_sizes_that_leave_nothing_or_mean_nothing_are_refused(sizes: dict[str, Any], told):
    with pytest.raises(ValueError, match=told):
        split_secrets(lists(TEN), **sizes)


def test_digest_tells_who_is_where_and_not_in_which_order():
    splits = Splits(train=("abbey", "cabin"), val=("dairy",), test=("eager",))
    twin = Splits(train=("cabin", "abbey"), val=("dairy",), test=("eager",))
    transfer = Splits(train=("abbey",), val=("dairy", "cabin"), test=("eager",))
    swap = Splits(train=("abbey", "cabin"), val=("eager",), test=("dairy",))
    assert splits.digest == twin.digest
    assert len({splits.digest, transfer.digest, swap.digest}) == 3


def test_allowed_has_every_allowed_word_but_the_held_out_ones_in_hash_order():
    settings = WordSettings(protocol="allowed")
    words, splits = settings.load()
    secrets = settings.training_secrets(words, splits)
    assert len(secrets) == 12_457 == 12_972 - 315 - 200
    assert list(secrets) == by_hash({*words.allowed} - {*by_hash(words.answers)[:515]})
    assert {*splits.train} < {*secrets}
    all_words = WordSettings(protocol="all")
    assert all_words.training_secrets(words, splits) == words.answers


def test_a_share_adds_the_secrets_of_allowed_and_keeps_the_training_answers():
    settings = WordSettings(allowed_share=0.25)
    words, splits = settings.load()
    assert settings.training_secrets(words, splits) == splits.train
    secrets = WordSettings(protocol="allowed").training_secrets(words, splits)
    assert settings.allowed_secrets(words, splits) == secrets
    assert WordSettings().allowed_secrets(words, splits) == ()


@pytest.mark.parametrize("more", [{"allowed_share": 0.5}, {"train": 5}])
def test_settings_that_do_not_go_together_are_refused(more: dict[str, Any]):
    with pytest.raises(ValueError, match=r"need words\.protocol=split"):
        WordSettings(protocol="all", **more)
