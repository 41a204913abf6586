"""The lineage of a model: which stages are clean, and the line that tables show."""

import hashlib
from typing import Any

import pytest

from wordle_rl.training.lineage import CLEAN, describe_lineage, is_clean
from wordle_rl.words.lists import WordLists, load_words
from wordle_rl.words.splits import Splits, split_secrets

WORDS = load_words()
SPLITS = split_secrets(WORDS, test=315, val=200)
DATE = "20261122-1415"


def digest(secrets) -> str:
    return hashlib.sha256("\n".join(sorted(secrets)).encode()).hexdigest()


def stage(name: str, protocol: str, secrets, **fields: Any) -> dict[str, Any]:
    return {
        "run": f"{DATE}_{name}",
        "protocol": protocol,
        "secrets": len(secrets),
        "held_out": 515,
        "digests": {"words": WORDS.digest, "splits": SPLITS.digest, "secrets": digest(secrets)},
        **fields,
    }


SECRETS = {*WORDS.allowed} - {*SPLITS.test, *SPLITS.val}
FIRST = stage("make_tiny_1", "allowed", SECRETS, start="untrained")
SECOND = stage("make_tiny_2", "allowed", SECRETS)
CLEAN_RUN = stage("clean", "split", SPLITS.train)
OLD_RUN = stage("make_old", "all", WORDS.answers, held_out=0, start="untrained")


def line(*stages: dict[str, Any], words: WordLists = WORDS, splits: Splits = SPLITS) -> str:
    return describe_lineage(stages, words, splits)


def test_the_line_names_each_stage_and_how_many_secrets_it_had():
    assert line(FIRST, SECOND, CLEAN_RUN) == (
        "lineage: make_tiny_1 (12,457 allowed words) -> make_tiny_2 (12,457 allowed words) -> "
        "clean (1,800 training answers). No test secret was ever the secret of a training game."
    )


def test_the_line_names_the_stages_whose_games_could_have_test_secrets():  # row 38
    assert line(OLD_RUN, CLEAN_RUN) == (
        "lineage: make_old (all 2,315 answers) -> clean (1,800 training answers). The training "
        "games of make_old could have validation or test secrets."
    )


def test_a_model_without_a_record_is_unknown_and_a_new_one_is_clean():
    assert line() == "lineage unknown: nobody recorded what the model was trained on."
    text = describe_lineage([], WORDS, SPLITS, untrained=True)
    assert text == f"lineage: an untrained model. {CLEAN}"


def test_fewer_held_out_secrets_of_the_same_lists_are_clean_and_more_are_not():  # row 38
    part, extra = split_secrets(WORDS, test=20, val=6), split_secrets(WORDS, test=316, val=200)
    assert {*part.test, *part.val} <= {*SPLITS.test, *SPLITS.val}
    assert is_clean(FIRST, WORDS, part) and is_clean(CLEAN_RUN, WORDS, part)
    assert {*extra.val} & {*SPLITS.train}
    assert not is_clean(FIRST, WORDS, extra) and not is_clean(CLEAN_RUN, WORDS, extra)


def test_other_lists_are_not_clean():
    words = WordLists(answers=WORDS.answers[::2], allowed=WORDS.allowed)
    splits = split_secrets(words, test=5, val=5)
    assert not is_clean(FIRST, words, splits)


@pytest.mark.parametrize("protocol", ["split", "allowed"])
def test_a_record_whose_secrets_are_not_what_its_protocol_allows_is_not_clean(protocol):  # row 38
    """One held-out word in place of another word: the counts are right, the digest is not."""
    secrets = sorted(SECRETS if protocol == "allowed" else SPLITS.train)
    assert is_clean(stage("run", protocol, secrets), WORDS, SPLITS)
    assert not is_clean(stage("run", protocol, [*secrets[1:], SPLITS.test[0]]), WORDS, SPLITS)


def test_a_reference_that_could_know_test_secrets_or_is_unknown_is_no_clean_teacher():  # row 38
    def pupil_of(*stages: dict[str, Any]) -> dict[str, Any]:
        return CLEAN_RUN | {"reference": {"name": "big", "stages": [*stages]}}

    assert is_clean(pupil_of(FIRST), WORDS, SPLITS) and is_clean(pupil_of(), WORDS, SPLITS)
    assert not is_clean(pupil_of(pupil_of(OLD_RUN)), WORDS, SPLITS)
    assert line(FIRST, pupil_of(FIRST)).endswith(f", reference big. {CLEAN}")
    assert line(FIRST, pupil_of()).endswith("What came before is unknown.")
