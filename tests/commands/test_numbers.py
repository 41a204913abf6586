"""Every number among the settings has a range with two ends, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from tests.helpers.configs import composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.experiment import TrainerSettings

SHIPPED = "".join(path.read_text() for path in (ROOT / "conf").rglob("*.yaml"))
CLASSES = sorted({
    *re.findall(r"_target_: *(wordle_rl[\w.]+)", SHIPPED),
    "wordle_rl.commands.eval_players.EvalSettings", "wordle_rl.policy.settings.LoraSettings",
    *(f"wordle_rl.sweeps.plan.{kind}Settings" for kind in ("Study", "Budget", "Analysis")),
})  # fmt: skip
# Filled in by the program, or compared with the word lists.
OTHERS = {"DrGrpo": {"budget"}, "Replay": {"groups"}, "RewardSet": {"weights"},
          "WordSettings": {"test", "val"}}  # fmt: skip


def is_bare(hint: Any) -> bool:
    """Whether a type takes any number."""
    if get_origin(hint) is Annotated:
        return False
    return hint in (int, float) or any(map(is_bare, get_args(hint)))


@pytest.mark.parametrize("target", CLASSES)
def test_every_number_among_the_settings_has_a_range(target: str) -> None:
    module, _, name = target.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    hints = get_type_hints(cls, include_extras=True)
    bare = {field.name for field in dataclasses.fields(cls) if is_bare(hints[field.name])}
    assert bare == OTHERS.get(name, set())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**20, -1, True, "abc"])
@pytest.mark.parametrize("name", ["steps", "validate_every", "validation_temperature"])
def test_a_number_out_of_its_range_is_refused_by_name(name: str, value: object) -> None:
    node = resolve(composed())["trainer"]
    with pytest.raises(ConfigError, match=rf"^trainer\.{name} must be [^\n]*, not [^\n]*$"):
        instantiate("trainer", {**node, name: value}, TrainerSettings)


@pytest.mark.parametrize("value", [10**20, math.nan, True])
def test_a_weight_and_a_seed_have_ranges_too(value: object) -> None:
    config = resolve(composed())
    with pytest.raises(ValueError, match="seed must be"):
        build_experiment({**config, "seed": value})
    config["reward"]["components"]["win"]["weight"] = value
    with pytest.raises(ValueError, match=r"reward\.components\.win\.weight must be"):
        build_experiment(config)
