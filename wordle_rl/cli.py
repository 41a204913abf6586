"""What the commands share: wrong input ends in one line and exit code 2.

Only errors about input are caught; anything else is a fault of the program and keeps its traceback.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def user_errors() -> Iterator[None]:
    """Errors about values and files in this block are the user's: one line, exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        fail(str(error))


def run(main: Callable[[], None]) -> None:
    """Call a Hydra main function; what Hydra finds wrong in the input ends in the same way."""
    # Hydra then raises its errors instead of printing paragraphs about them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    sys.argv = [quoted(argument) for argument in sys.argv]
    try:
        main()
    except (HydraException, OmegaConfBaseException) as error:
        fail(_readable(error))


def quoted(argument: str) -> str:
    """num_generations=8 as Hydra reads it: an option of a group is text, never a number."""
    key, equals, value = argument.partition("=")
    if key != "num_generations" or not equals:
        return argument
    return f"{key}=" + ",".join(f"'{v}'" if v.isdigit() else v for v in value.split(","))


def _readable(error: BaseException) -> str:
    """Hydra's message with its cause, without what is of no use to the user."""
    text = str(error)
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text += f" {error.__cause__}"
    text = text.split("Config search path:")[0]
    if "'num_generations/" in text:
        text += "; any other number: rollout.num_generations=..."
    return re.sub(r"full_key: \S+|object_type=\S+", "", text)


def fail(message: str) -> NoReturn:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(2)
