"""How a command ends: its output is flushed, and an error of the user is one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from wordle_rl.runs import libraries
from wordle_rl.runs.full_disk import full_disk
from wordle_rl.runs.start import Failed, end_at_once, say
from wordle_rl.runs.untrusted import printable


def run_plain(main: Callable[[], int | None]) -> NoReturn:
    """Run a command that does not use Hydra. main: returns its exit code."""
    with whole_command():
        sys.exit(main())


@contextmanager
def whole_command() -> Iterator[None]:
    """Wrap a whole command: its output is flushed when the block is left."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail_without_library(error)
    finally:
        sys.stdout.flush()
        end_at_once()


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with one line on standard error."""
    message = printable(" ".join(message.split()))
    say(f"error: {message}")
    raise Failed(message, code)


def fail_without_library(error: ImportError) -> NoReturn:
    """End the command when an optional library is missing; raise any other import error."""
    advice = libraries.missing(error)
    if advice is None:
        raise error
    fail(advice)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors about values, files and missing libraries in this block into one line, exit 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        if type(error).__module__.startswith("hydra."):
            raise  # the command reads these
        fail(str(error))
    except ModuleNotFoundError as error:
        fail_without_library(error)


@contextmanager
def full_disk_told() -> Iterator[None]:
    """End the command with one line when the disk is full in this block or decorated function."""
    try:
        yield
    except Exception as error:
        if full_disk(error) is None:
            raise
        fail(str(error))
