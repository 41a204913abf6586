"""Runs a Hydra command. Wrong input ends it with a one-line message and exit code 2.

Only input errors and full disks are caught. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from wordle_rl.hydra_errors import describe_hydra_error
from wordle_rl.runs.errors import fail, whole_command
from wordle_rl.runs.paths import CONF
from wordle_rl.runs.untrusted import FolderError

_DATA = ("data", "data.path", "data.split")
_NO_DATA = ("", "none", "null")
_PLAIN = re.compile(r"[^\s'\"()\[\]{}]*")  # names of options, separated by commas in a sweep


def run(main: Callable[[], None]) -> None:
    """Call a Hydra main function. Hydra's own errors about the input also end in one line."""
    # Makes Hydra raise its errors instead of printing paragraphs about them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    shorten_spins()
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    sys.argv = [quoted(argument) for argument in sys.argv]
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    with whole_command():
        try:
            with _report_unknown_flags():
                main()
        except (HydraException, OmegaConfBaseException) as error:
            fail(describe_hydra_error(error))
        except FolderError as error:  # raised only while the model plays, or at a run's end
            fail(str(error))


def shorten_spins() -> None:
    """Let waiting threads spin only briefly. Call this before torch is imported.

    GNU OpenMP's long spins slow every operation up to tenfold when other processes are running.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def quoted(argument: str) -> str:
    """Quote an argument for Hydra if it must be read as text, not as a number, null or a list.

    That applies to options of a group, and to values with non-ASCII letters, such as paths.
    """
    key, equals, value = argument.partition("=")
    if key in _DATA and equals and value not in _NO_DATA:
        # A file's name may hold anything, and a slice has brackets.
        key = "data.path" if key == "data" else key
        escaped = value.strip("'").replace("\\", "\\\\").replace("'", "\\'")
        return f"{key}='{escaped}'"
    if argument == "data=null":
        return "data=none"
    if not value.isascii() and _PLAIN.fullmatch(value) and not {",", "\\"} & set(value):
        return f"{key}='{value}'"
    if not equals or not key or "/" in key or not (CONF / key).is_dir():
        return argument
    if _PLAIN.fullmatch(value):
        return f"{key}=" + ",".join(f"'{option}'" for option in value.split(","))
    return f"{key}='{value}'" if value[0] in "[{" and "'" not in value else argument


@contextmanager
def _report_unknown_flags() -> Iterator[None]:
    """Make Hydra's argument parser print one line about an error, not its usage."""

    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        fail(f"{message}; settings are given as key=value, see --help")

    usual = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = error
    try:
        yield
    finally:
        argparse.ArgumentParser.error = usual
