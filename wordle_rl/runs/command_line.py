"""The parser of commands that do not use Hydra."""

from __future__ import annotations

import argparse
from typing import NoReturn

from wordle_rl.runs.errors import fail


class CommandParser(argparse.ArgumentParser):
    """Ends the command with one line, and exit code 2, for arguments that it does not know.

    Passwords in them are masked.
    """

    def error(self, message: str) -> NoReturn:
        fail(f"{message}; see --help")
