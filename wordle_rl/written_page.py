"""Keeps a page of docs/ that a command writes: choices.py and metrics.py have one each.

An installed package has no docs/, so there the command prints the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.paths import INSTALLED, module_command


def keep_page(arguments: Sequence[str] | None, name: str, page: Path, text: str) -> int:
    """Write a page, or with --check compare it. Returns the exit code, 1 for a difference.

    name: of the command and of make's target.
    """
    parser = CommandParser(prog=module_command(name), description=f"Write docs/{page.name}.")
    parser.add_argument(
        "--check", action="store_true", help="compare only, exit code 1 if outdated"
    )
    check = parser.parse_args(arguments).check
    if INSTALLED:
        print(text)
        return 0
    if not check:
        page.write_text(text, encoding="utf-8")
        print(page)
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"docs/{page.name} is out of date: run make {name}, or {module_command(name)}")
    return 1
