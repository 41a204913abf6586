"""What the commands share: wrong input ends in one line and exit code 2.

Only errors about input and full disks are caught; anything else is a fault of the program and
keeps its traceback.
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

_PLAIN = re.compile(r"[^\s'\"()\[\]{}]*")  # options as names, several of them for a sweep


def run(main: Callable[[], None]) -> None:
    """Call a Hydra main function; what Hydra finds wrong in the input ends in the same way."""
    # Hydra then raises its errors instead of printing paragraphs about them.
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
        except FolderError as error:  # found only while the model plays, or at a run's end
            fail(str(error))


def shorten_spins() -> None:
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
def _report_unknown_flags() -> Iterator[None]:
    """Hydra's parser of arguments ends in one line, too, instead of its usage."""

    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        fail(f"{message}; settings are given as key=value, see --help")

    usual = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = error
    try:
        yield
    finally:
        argparse.ArgumentParser.error = usual
