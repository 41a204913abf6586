"""What the commands share: wrong input ends in one line and exit code 2.

Only errors about input and full disks are caught; anything else is a fault of the program and
keeps its traceback.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from wordle_rl.runs.errors import fail, whole_command
from wordle_rl.runs.paths import CONF
from wordle_rl.runs.untrusted import FolderError

_PLAIN = re.compile(r"[^\s'\"()\[\]{}]*")  # options as names, several of them for a sweep


def run(main: Callable[[], None]) -> None:
    """Call a Hydra main function; what Hydra finds wrong in the input ends in the same way."""
    # Hydra then raises its errors instead of printing paragraphs about them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    brief_spins()
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    sys.argv = [quoted(argument) for argument in sys.argv]
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    with whole_command():
        try:
            with _unknown_flags_told():
                main()
        except (HydraException, OmegaConfBaseException) as error:
            fail(_readable(error))
        except FolderError as error:  # found only while the model plays, or at a run's end
            fail(str(error))


def brief_spins() -> None:
    """Let threads that wait for each other spin only briefly; call before torch is imported.

    Beside other processes long spins of GNU's OpenMP slow every operation, up to tenfold.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def quoted(argument: str) -> str:
    """An argument as Hydra reads it: an option of a group is text, never a number, null or a list.

    So is a value with letters beyond ASCII, such as a path, which Hydra takes in quotes only.
    """
    key, equals, value = argument.partition("=")
    if not value.isascii() and _PLAIN.fullmatch(value) and not {",", "\\"} & set(value):
        return f"{key}='{value}'"
    if not equals or not key or "/" in key or not (CONF / key).is_dir():
        return argument
    if _PLAIN.fullmatch(value):
        return f"{key}=" + ",".join(f"'{option}'" for option in value.split(","))
    return f"{key}='{value}'" if value[0] in "[{" and "'" not in value else argument


@contextmanager
def _unknown_flags_told() -> Iterator[None]:
    """Hydra's parser of arguments ends in one line, too, instead of its usage."""

    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        fail(f"{message}; settings are given as key=value, see --help")

    usual = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = error
    try:
        yield
    finally:
        argparse.ArgumentParser.error = usual


def _readable(error: Exception) -> str:
    """What Hydra found wrong, and what is allowed instead."""
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
        return f"{group} must be one of {', '.join(options)}, not {option!r}{more}"
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
        return _no_setting(cause.full_key, cause.parent_node or {})
    if found := re.match("Ambiguous value for argument '(.*)'\n", str(error)):
        return f"{found[1]}: give one value, or make a study with -m sweep=..."
    if found := re.match("Could not override '(.*)'. No match in the defaults list", str(error)):
        return f"there is no choice {found[1]} in this command, see --help"
    text = f"{error} {cause or ''}"
    return re.sub(r"To append to .*|full_key: \S+|object_type=\S+", "", text)


def _no_setting(key: str, node: Mapping[Any, Any]) -> str:
    from wordle_rl.runs.instantiate import settings_of

    group, _, name = key.rpartition(".")
    if key == "optim.name":
        options = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
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
    close = difflib.get_close_matches(name, there, 1, 0.7)
    meant = f", did you mean {group and group + '.'}{close[0]}?" if close else ";"
    has = f"{group or 'the config'} has {', '.join(there)}"
    return f"there is no setting {key}{meant} {has}{only}"
