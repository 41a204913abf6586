"""Without verl: what is written for it has the keys and the kinds of values that verl has."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.helpers.configs import composed
from tests.helpers.verl.cases import CASES, DEFAULTS, as_bash_hands_on, kind_of
from wordle_rl.adapters.verl.keys import map_choices
from wordle_rl.adapters.verl.limits import ALGORITHMS
from wordle_rl.commands.build import build_experiment, resolve

CORRECTION = "algorithm.rollout_correction"
WIDER = {"actor_rollout_ref.model.target_modules": "list"}  # verl takes this kind, too


def keys_of(line: str) -> dict[str, Any]:
    keys, _ = map_choices(build_experiment(resolve(composed(*shlex.split(line)))))
    return {key: as_bash_hands_on(value) for key, value in keys.items()}


@pytest.mark.parametrize("line", CASES)
def test_every_key_is_one_of_verls_and_its_value_of_the_same_kind(line):
    for key, value in keys_of(line).items():
        assert value != "auto", key  # a word of ours
        if key.startswith("+"):  # is new to verl's config
            continue
        kind = DEFAULTS[key]
        assert kind in ("null", kind_of(value)) or WIDER.get(key) == kind_of(value), key


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("given", "expected"), [(None, 2.0), ("3.5", 3.5), ("null", None)])
def test_the_limit_of_importance_weights_is_a_number_because_vllm_draws(algorithm, given, expected):
    line = f"model=tiny algorithm={algorithm}"
    keys = keys_of(line if given is None else f"{line} algorithm.importance_cap={given}")
    assert keys.get(f"{CORRECTION}.rollout_is_threshold") == expected
    assert keys.get(f"{CORRECTION}.rollout_is") == (None if expected is None else "token")
