"""Every number of every option has a range with two ends, and nothing else is taken for a number.

The settings are found by walking the composed configs, so a new one is covered as soon as a file in
conf/ names it or its class has it.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from tests.helpers.configs import OPTIONS, composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.eval_players import EvalSettings
from wordle_rl.runs.instantiate import instantiate
from wordle_rl.runs.paths import ROOT

WRONG = {
    float: (math.nan, math.inf, -math.inf, 1e308, 10**20, -(10**20), True, "abc"),
    bool: (0, 1, "yes"),
}
SECTIONS = ("seed=0", "trainer", "words", "rules", "sampling", "data", "vllm")  # no options
Path_ = tuple[str, ...]


def listed(node: Any, target: str = "") -> Iterator[tuple[str, str]]:
    """The keys of a file in conf/, each with the class that it is for."""
    if isinstance(node, dict):
        target = node.get("_target_", target)
        for key, value in node.items():
            yield target, key
            yield from listed(value, target)


def choices() -> Iterator[str]:
    """Options that have a setting which no earlier option of the group has, and single values."""
    yield from SECTIONS
    for group, options in OPTIONS.items():
        if group in ("hydra", "experiment", "sweep"):  # no settings of their own
            continue
        seen: set[tuple[str, str]] = set()
        for option in options:
            file = ROOT / "conf" / group / f"{option}.yaml"
            new = set(listed(yaml.safe_load(file.read_text(encoding="utf-8"))))
            if new - seen:
                yield f"{group}={option}"
            seen |= new


def kinds(hint: Any) -> set[Any]:
    return {kind for part in get_args(hint) or (hint,) for kind in (get_args(part) or (part,))}


def settings(node: Any, path: Path_ = ()) -> Iterator[tuple[Path_, type]]:
    """Where numbers and switches stand in a part of a config, listed in it or not."""
    if not isinstance(node, dict):
        return
    if "_target_" in node:
        module, _, name = node["_target_"].rpartition(".")
        hints = get_type_hints(getattr(importlib.import_module(module), name))
        for field in dataclasses.fields(getattr(importlib.import_module(module), name)):
            found = kinds(hints[field.name])
            if not isinstance(node.get(field.name), dict):
                if found & {int, float} and dict not in found:
                    yield (*path, field.name), float
                elif bool in found:
                    yield (*path, field.name), bool
    for key, value in node.items():
        if isinstance(value, dict):
            yield from settings(value, (*path, key))
        elif isinstance(value, bool):
            yield (*path, key), bool
        elif isinstance(value, int | float):
            yield (*path, key), float


def changed(config: dict[str, Any], path: Path_, value: object) -> dict[str, Any]:
    new = copy.deepcopy(config)
    node = new
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return new


def taken(config: dict[str, Any], path: Path_, kind: type, build: Callable) -> list[str]:
    """What is wrongly taken for a setting, or refused without its name or in several lines."""
    faults = []
    for value in WRONG[kind]:
        try:
            build(changed(config, path, value))
        except ValueError as error:
            line = str(error)
            if path[-1] not in line or "\n" in line or len(line) > 400:
                faults.append(f"{'.'.join(path)}={value!r}: {line!r}")
        except Exception as error:  # any other is what this test looks for
            faults.append(f"{'.'.join(path)}={value!r}: {error!r}")
        else:
            faults.append(f"{'.'.join(path)}={value!r} is taken")
    return faults


QUICK = ("seed=0", "trainer")


@pytest.mark.parametrize(
    "choice",
    [pytest.param(c, marks=[] if c in QUICK else [pytest.mark.slow]) for c in choices()],
)
def test_a_number_out_of_its_range_is_refused_by_name(choice: str) -> None:
    group, option, _ = choice.partition("=")
    config = resolve(composed(choice) if option else composed())
    parts = [group] if group != "seed" else ["seed", "optim", "allow_mismatch"]
    build_experiment(config)  # which is right as it is
    faults, seen = [], set()
    for part in parts:
        for path, kind in settings({part: config[part]}):
            if path not in seen:
                seen.add(path)
                faults += taken(config, path, kind, build_experiment)
    assert not faults


def test_a_number_of_the_eval_command_out_of_its_range_is_refused_by_name() -> None:
    config = resolve(composed(name="eval"))
    own = {k: v for k, v in config.items() if k in EvalSettings.__dataclass_fields__}
    node = {"_target_": "wordle_rl.commands.eval_players.EvalSettings", **own}
    found = dict(settings(node))
    assert {("samples",), ("limit",), ("time_limit",), ("show",), ("seed",)} <= set(found)
    faults = [
        fault
        for path, kind in found.items()
        for fault in taken(node, path, kind, lambda n: instantiate("", n, EvalSettings))
    ]
    assert not faults
