"""The teacher and the optimum beside the arms of a study."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hydra import initialize_config_dir

from wordle_rl.references import OPTIMUM, TEACHERS, describe_start, find_study_references
from wordle_rl.runs.paths import CONF, ROOT
from wordle_rl.sweeps.reading import read_study
from wordle_rl.sweeps.results import Study

TEACHER = TEACHERS["random_consistent_allowed"]


@cache
def shipped(name: str) -> Study:
    return read_study(ROOT / "sweeps" / name)


@pytest.mark.parametrize("name", ["history_weak", "joint"])
def test_a_shipped_study_has_the_teacher_of_its_start_and_the_optimum(name):
    assert find_study_references(shipped(name)) == (OPTIMUM, TEACHER)


def test_references_are_found_while_a_command_of_hydra_runs():
    """A study looks for them at its end, when Hydra is set up."""
    describe_start.cache_clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        assert find_study_references(shipped("joint")) == (OPTIMUM, TEACHER)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["model=micro"], (OPTIMUM, TEACHER)),  # another model with the same teacher
        (["model=smollm2"], (OPTIMUM,)),  # nobody taught it
        (["rules=hard"], ()), (["words=custom", "words.answers=mine.txt"], ()),
        (["model=nothing"], ()),
    ],
)  # fmt: skip
def test_an_arm_may_have_another_teacher_other_rules_or_other_words(change, expected):
    study = shipped("history_weak")
    identity = {**study.identity, "arms": {"a": [], "b": change}}
    assert find_study_references(replace(study, identity=identity)) == expected


def test_settings_of_all_trials_may_change_the_words():
    study = shipped("history_weak")
    for more in ({"overrides": ["words=custom"]}, {"params": {"model": "choice(mini, micro)"}}):
        assert find_study_references(replace(study, identity={**study.identity, **more})) == ()
