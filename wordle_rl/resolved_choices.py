"""The lines in which a run says what it chose, and what a model or a rollout chose for it.

Hydra knows the option of each group. The manifest of a run keeps them, so that a resumed run prints
the same lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig

from wordle_rl.earlier_run import list_keys
from wordle_rl.runs.files import printable
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import CONF
from wordle_rl.runs.terminal import fold

_ORDER = (  # of the line; other groups follow
    *("experiment", "model", "backend", "algorithm", "reward", "curriculum", "rollout"),
    *("num_generations", "history", "data", "prompt", "optim", "words", "rules", "sampling"),
)
_LEFT_OUT = ("sweep", "trainer", "logger", "vllm")  # they change nothing about what is learnt
_CHOOSERS = ("rollout", "model", "experiment")  # their files choose options of other groups
_ADOPTED = ("model", "prompt", "optim")  # a run with init_from= takes these from there


def hydra_choices() -> dict[str, str]:
    """The option of each group in this process; empty where Hydra did not start it."""
    if not HydraConfig.initialized():
        return {}
    chosen = HydraConfig.get().runtime.choices
    return {str(group): str(option) for group, option in chosen.items() if option is not None}


def print_choices(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Print what a run chose, as its manifest records it.

    config: the resolved config of the run.
    """
    manifest = folder.manifest()
    choices = {
        group: option
        for group, option in manifest.get("choices", {}).items()
        if option in _list_options(group)
    }
    if choices:
        for line in choice_lines(choices, manifest.get("command", []), config):
            print(fold(printable(line)), flush=True)


def _list_options(group: str) -> list[str]:
    return [path.stem for path in (CONF / group).glob("*.yaml")]


def choice_lines(
    choices: Mapping[str, str], overrides: Iterable[str], config: Mapping[str, Any]
) -> list[str]:
    """One line of all choices, and one for each part that made some of them.

    choices: group -> option, as Hydra resolved them. overrides: those of the command line. config:
    the resolved config, which has the single values.
    """
    given = list_keys(overrides)
    shown = {g: o for g, o in choices.items() if "/" not in g and g not in _LEFT_OUT}
    shown.pop("data", None)
    if path := config.get("data", {}).get("path"):
        shown["data"] = path
    number = str(config["rollout"]["num_generations"])
    if shown.get("num_generations") != number:
        shown.pop("num_generations", None)
        shown["rollout.num_generations"] = number
    lines = []
    if run := config.get("init_from"):
        adopted = [group for group in _ADOPTED if group in shown and group not in given]
        adopted += ["backend"] * (_target(choices.get("backend")) != config["backend"]["_target_"])
        shown = {group: option for group, option in shown.items() if group not in adopted}
        lines.append(f"taken from init_from={run}: {', '.join(adopted)}")
    for chooser, settings in _chosen_by(choices, given, config).items():
        kept = [f"{key}={value}" for key, value in settings.items() if key in shown or "." in key]
        if kept and chooser.partition("=")[0] in shown:
            lines.append(f"chosen by {chooser}: {' '.join(kept)}")
    order = sorted(shown, key=_place)
    return ["choices: " + " ".join(f"{group}={shown[group]}" for group in order), *lines]


def _target(backend: str | None) -> str:
    """The class of a backend's file; an adapter's backend comes with it from the earlier run."""
    file = CONF / "backend" / f"{backend}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8"))["_target_"] if file.is_file() else ""


def _place(key: str) -> tuple[int, str]:
    group = key.rpartition(".")[2]
    return _ORDER.index(group) if group in _ORDER else len(_ORDER), key


def _chosen_by(
    choices: Mapping[str, str], given: set[str], config: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What the files of rollout=, model= and experiment= chose by themselves, by `group=option`.

    Left out is what the command line names itself, and what something else overruled.
    """
    found: dict[str, dict[str, Any]] = {}
    for group in (g for g in _CHOOSERS if g in choices):
        file = CONF / group / f"{choices[group]}.yaml"
        settings = {g: o for g, o in _overridden(file) if g not in given and choices.get(g) == o}
        if group != "experiment":  # whose single values are what it is chosen for
            settings |= {
                key: value
                for key, value in _foreign_values(file, group)
                if key not in given and _value(config, key) == value
            }
        for earlier in found.values():  # the last one wins
            for key in settings:
                earlier.pop(key, None)
        found[f"{group}={choices[group]}"] = settings
    return found


def _overridden(file: Path) -> Iterator[tuple[str, str]]:
    """Group and option of each `override /group: option` of a file and those it builds on."""
    for entry in yaml.safe_load(file.read_text(encoding="utf-8")).get("defaults", []):
        if isinstance(entry, str) and entry != "_self_":
            yield from _overridden(file.with_name(f"{entry}.yaml"))
        elif isinstance(entry, dict):
            for key, option in entry.items():
                if key.startswith("override /"):
                    yield key.removeprefix("override /"), str(option)


def _foreign_values(file: Path, group: str) -> Iterator[tuple[str, Any]]:
    """Key and value of each setting of other groups in a file that is for the whole config."""
    text = file.read_text(encoding="utf-8")
    if not text.startswith("# @package _global_"):
        return
    for other, settings in yaml.safe_load(text).items():
        if other not in (group, "defaults"):
            for key, value in settings.items():
                yield f"{other}.{key}", value


def _value(config: Mapping[str, Any], key: str) -> Any:
    group, _, name = key.partition(".")
    return config.get(group, {}).get(name)
