"""The commands of wordle-rl, found among the modules of the package.

A module is a command if it begins with start.begin(). Its name and the first line of its docstring
are the command's. Reads the files and imports none of them.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from wordle_rl.runs.paths import PACKAGE

COMPOSED = {"train": "train", "eval": "evaluate"}  # name -> its function in hydra_commands.py
_SUMMARIES = {
    "train": "Trains a model to play Wordle, or runs a study with -m",
    "eval": "Plays full games with a run, a model or a scripted player, beside the solvers",
}
_BEGINS = re.compile(r'^if __name__ == "__main__":.*\n(?:(?:    .*)?\n)*?    start\.begin\(', re.M)
_CALL = re.compile(r"[:,]? *[`(]*(?:python -m|wordle-rl) ")  # from here on, how to call the module
_WIDTH = 100  # columns at most


def find_module(name: str) -> str | None:
    """The module that a command runs, None for an unknown name."""
    stem = name.replace("-", "_")
    for module, path in _list_files():
        if module == f"{PACKAGE.name}.{stem}" and _BEGINS.search(_read(path)):
            return module
    return None


def find_commands() -> dict[str, str]:
    """Name and summary of every command, train and eval first."""
    found = {}
    for module, path in _list_files():
        text = _read(path)
        if _BEGINS.search(text):
            found[module.rpartition(".")[2].replace("_", "-")] = _summarise(text)
    return {**_SUMMARIES, **dict(sorted(found.items()))}


def describe_commands() -> str:
    """What wordle-rl --help prints, as wide as the terminal, at most 100 columns."""
    commands = find_commands()
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
    column = max(map(len, commands)) + 4
    lines = ["usage: wordle-rl <command> [arguments]", ""]
    for name, summary in commands.items():
        text = f"  {name:<{column - 2}}{summary}"
        lines += textwrap.wrap(text, width, subsequent_indent=" " * column)
    lines += ["", "wordle-rl <command> --help explains a command."]
    return "\n".join(lines)


def name_near_miss(name: str) -> NoReturn:
    """End the command with a line about an unknown name."""
    import difflib

    from wordle_rl.runs.errors import fail

    close = difflib.get_close_matches(name, find_commands(), 1, 0.5)
    meant = f", did you mean {close[0]}?" if close else ":"
    fail(f"there is no command {name}{meant} wordle-rl --help lists them")


def _list_files() -> Iterator[tuple[str, Path]]:
    """Module and file of what may be a command: loose modules, and folders that can be run."""
    for path in sorted(PACKAGE.glob("*.py")):
        if path.stem != "__main__":
            yield f"{PACKAGE.name}.{path.stem}", path
    for path in sorted(PACKAGE.glob("*/__main__.py")):
        yield f"{PACKAGE.name}.{path.parent.name}", path


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _summarise(text: str) -> str:
    """The first sentence of a module's docstring, without how to call the module."""
    line = text.partition('"""')[2].partition("\n")[0].partition('"""')[0]
    return _CALL.split(line)[0].rstrip(" .:`(")
