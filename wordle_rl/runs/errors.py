"""How a command ends: its output is written, and what is wrong is told in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from wordle_rl.runs import libraries
from wordle_rl.runs.addresses import hidden
from wordle_rl.runs.full_disk import full_disk
from wordle_rl.runs.start import Failed, end_at_once, say
from wordle_rl.runs.untrusted import printable


def run_plain(main: Callable[[], int | None]) -> NoReturn:
    """Call the main function of a command without Hydra, which returns its exit code."""
    with whole_command():
        sys.exit(main())


@contextmanager
def whole_command() -> Iterator[None]:
    """The whole of a command, whose output is written when the block is left."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail_without_library(error)
    finally:
        sys.stdout.flush()
        end_at_once()


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with one line on the standard error, its arguments' passwords masked."""
    message = printable(" ".join(hidden(message, sys.argv).split()))
    say(f"error: {message}")
    raise Failed(message, code)


def fail_without_library(error: ImportError) -> NoReturn:
    """The same when an import failed for want of a library that is an option; else raise it."""
    advice = libraries.missing(error)
    if advice is None:
        raise error
    fail(advice)


@contextmanager
def user_errors() -> Iterator[None]:
    """Errors about values and files in this block are the user's: one line, exit code 2.

    So is a library that is not installed.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        if type(error).__module__.startswith("hydra."):
            raise  # run() reads those
        fail(str(error))
    except ModuleNotFoundError as error:
        fail_without_library(error)


@contextmanager
def full_disk_told() -> Iterator[None]:
    """A full disk in this block, or in a function that this decorates, ends in the same way."""
    try:
        yield
    except Exception as error:
        if full_disk(error) is None:
            raise
        fail(str(error))
