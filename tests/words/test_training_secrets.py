"""Which secrets training games may have, by words.protocol and words.allowed_share."""

from __future__ import annotations

import hashlib

import pytest

from wordle_rl.words.lists import load_words
from wordle_rl.words.settings import WordSettings


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


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match=r"words\.allowed_share must be 0\.\.1"):
        WordSettings(allowed_share=share)


@pytest.mark.parametrize("protocol", ["all", "allowed"])
def test_a_share_is_for_split(protocol):
    with pytest.raises(ValueError, match=r"must be 0 unless words\.protocol=split, not 0\.5"):
        WordSettings(protocol=protocol, allowed_share=0.5)
