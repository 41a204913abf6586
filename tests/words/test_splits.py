"""Train, validation and test secrets, and which of them a run may train on."""

from __future__ import annotations

import hashlib

import pytest

from wordle_rl.words.lists import WordLists, load_words
from wordle_rl.words.splits import Splits, WordSettings, split_secrets

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


@pytest.mark.parametrize("size", [0, 1.0, True, float("nan")])
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


def by_hash(words):
    return sorted(words, key=lambda word: hashlib.sha256(word.encode()).hexdigest())


def test_allowed_has_every_allowed_word_but_the_held_out_ones_in_hash_order():
    settings = WordSettings(protocol="allowed")
    words, splits = settings.load()
    secrets = settings.training_secrets(words, splits)
    assert len(secrets) == 12_457 == 12_972 - 315 - 200
    assert list(secrets) == by_hash({*words.allowed} - {*by_hash(words.answers)[:515]})
    assert not {*secrets} & {*splits.val, *splits.test}
    assert {*splits.train} < {*secrets}


def test_a_protocol_without_a_share_has_no_secrets_beside_it():
    words, splits = WordSettings().load()
    for protocol, count in (("split", 1_800), ("all", 2_315), ("allowed", 12_457)):
        settings = WordSettings(protocol=protocol)
        assert len(settings.training_secrets(words, splits)) == count
        assert settings.allowed_secrets(words, splits) == ()


def test_a_share_adds_the_secrets_of_allowed_and_keeps_the_training_answers():
    settings = WordSettings(allowed_share=0.25)
    words, splits = settings.load()
    assert settings.training_secrets(words, splits) == splits.train
    clean = WordSettings(protocol="allowed").training_secrets(words, splits)
    assert settings.allowed_secrets(words, splits) == clean


def test_lists_whose_guesses_are_all_answers_have_only_training_answers(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("\n".join(load_words().answers[::50]))
    settings = WordSettings(preset=None, answers=str(file), test=5, val=5, protocol="allowed")
    words, splits = settings.load()
    assert settings.training_secrets(words, splits) == splits.train


@pytest.mark.parametrize("share", [-0.1, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match=r"words\.allowed_share must be 0\.\.1"):
        WordSettings(allowed_share=share)


@pytest.mark.parametrize("protocol", ["all", "allowed"])
def test_a_share_is_for_split(protocol):
    with pytest.raises(ValueError, match=r"must be 0 unless words\.protocol=split, not 0\.5"):
        WordSettings(protocol=protocol, allowed_share=0.5)
