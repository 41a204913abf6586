"""Turns Hydra's errors about the input into one line that says what is allowed.

It relies on the classes and texts of errors in Hydra 1.3 and OmegaConf 2.3.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from wordle_rl.runs.instantiate import settings_of
from wordle_rl.runs.paths import CONF, TRAIN

_MOST_NAMED = 3  # settings that a line proposes
_LORA = [f"model.lora.{name}" for name in settings_of("wordle_rl.policy.settings.LoraSettings")]


def describe_hydra_error(error: Exception) -> str:
    """Describe an error of Hydra or OmegaConf in one line."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError

    cause = error.__cause__
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override}: settings are given as key=value; a value with blanks or any of "
            "()[]{}:=~ needs quotes, such as \"name='my run'\""
        )
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.partition("/")
        more = "; any other number: rollout.num_generations=..." * (group == "num_generations")
        options = sorted(error.options, key=lambda o: (o.isdigit() and int(o), o))
        close = difflib.get_close_matches(option, options, 1, 0.6)
        more += f"; did you mean {close[0]}?" if close else ""
        return f"{group} must be one of {', '.join(options)}, not {option!r}{more}"
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
        given = re.search(r"To append to your config use \+[^=]*=(.*)", str(error))
        if given and not cause.parent_node and cause.full_key in _LORA:
            whole = f"model.lora={{{cause.full_key.rpartition('.')[2]}: {given[1]}}}"
            return f'{cause.full_key}: this model has no adapter, set "{whole}"'
        return _describe_unknown_key(cause.full_key, cause.parent_node or {})
    if found := re.match("Ambiguous value for argument '(.*)'\n", str(error)):
        several = f"compare several in a study: {TRAIN} -m {found[1]}"
        return f"{found[1]}: give one value, or {several}"
    if found := re.match("Could not override '(.*)'. No match in the defaults list", str(error)):
        return f"there is no choice {found[1]} in this command, see --help"
    text = f"{error} {cause or ''}"
    return re.sub(r"To append to .*|full_key: \S+|object_type=\S+", "", text)


def _find_inside(name: str, node: Mapping[Any, Any]) -> list[str]:
    """The settings of this name in any group of a config, a few at most.

    Without any, the settings whose name is nearly the same.
    """
    keys = [f"{group}.{key}" for group, settings in node.items() if isinstance(settings, Mapping)
            for key in settings if group != "hydra" and key != "_target_"]  # fmt: skip
    own = [key for key in keys if key.partition(".")[2] == name]
    if own or not node or name in node:
        return own[:_MOST_NAMED]
    if difflib.get_close_matches(name, map(str, node), 1, 0.7):
        return []
    ends = {key.partition(".")[2]: key for key in reversed(keys)}
    return [ends[end] for end in difflib.get_close_matches(name, ends, 1, 0.75)]


def _describe_unknown_key(key: str, node: Mapping[Any, Any]) -> str:
    group, _, name = key.rpartition(".")
    if key in ("optim.name", "model.optimizer"):  # of earlier versions
        options = sorted(path.stem for path in (CONF / "optim").glob("*.yaml"))
        return f"there is no setting {key}: use {' or '.join(f'optim={o}' for o in options)}"
    if "_target_" in node and name in settings_of(node["_target_"]):
        return (
            f"{key} is not listed in the YAML file of {group}, and only what is listed there can "
            f"be overridden: list it, or write +{key}=..."
        )
    files = sorted((CONF / group).glob("*.yaml")) if group and "." not in group else []
    listed = re.compile(f"^{re.escape(name)}:", re.M)
    own = [file.stem for file in files if listed.search(file.read_text(encoding="utf-8"))]
    only = f"; it is for {' and '.join(f'{group}={option}' for option in own)}" if own else ""
    there = sorted(set(map(str, node)) - {"hydra", "_target_"})
    if not there:
        return f"there is no setting {key}: {group} is a single value{only}"
    # These two choices are no part of the composed config.
    named = [*there, "experiment", "sweep"] if "trainer" in node else there
    close = difflib.get_close_matches(name, named, 1, 0.7)
    near = [f"{group and group + '.'}{close[0]}"] if close else []
    if not group and (inner := _find_inside(name, node)):
        near = inner
    meant = f", did you mean {' or '.join(near)}?" if near else ";"
    has = f"{group or 'the config'} has {', '.join(there)}"
    return f"there is no setting {key}{meant} {has}{only}"
