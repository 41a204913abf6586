"""Writes the report of a study: python -m wordle_rl.study sweeps/<name> [--storage URL].

Writes results.csv, the pictures and README.md into the folder, and what the index beside it says of
the studies that it lists; --index adds a study to it. Keeps the conclusion that a person wrote into
README.md. Also works while a study runs.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
from collections.abc import Sequence
from pathlib import Path

from wordle_rl.runs.addresses import STORAGE
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.paths import module_command
from wordle_rl.runs.untrusted import printable


def write_report(folder: Path, url: str | None = None, *, listed: bool = False) -> Path:
    """Write the report of a study. Returns its page. Raises ValueError.

    listed: whether the index of studies beside the folder gets it.
    """
    from wordle_rl.runs.files import write_bytes
    from wordle_rl.sweeps.plots import write_plots
    from wordle_rl.sweeps.report import format_csv, format_page, write_index
    from wordle_rl.sweeps.results import read_study

    study = read_study(folder, url)
    write_bytes(folder / "results.csv", format_csv(study).encode())
    pictures = write_plots(study, folder)
    path = folder / "README.md"
    before = path.read_text(encoding="utf-8") if path.exists() else None
    write_bytes(path, format_page(study, pictures, before).encode())
    folder = folder.resolve()
    write_index(folder.parent, folder.name if listed else None)
    return path


def _folder(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError("must be a folder; --storage takes an address")
    return Path(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = CommandParser(prog=module_command("study"), description="Write the report of a study.")
    parser.add_argument(
        "folder", type=_folder, metavar="FOLDER", help="of the study, sweeps/<name>"
    )
    parser.add_argument(
        "--storage", metavar="URL",
        help=f"the database, if study.json leaves out its password; or set {STORAGE}",
    )  # fmt: skip
    parser.add_argument(
        "--index", action="store_true", help="also list it in README.md beside its folder"
    )
    options = parser.parse_args(arguments)
    with user_errors():
        page = write_report(options.folder, options.storage, listed=options.index)
        print(printable(str(page)))
    return 0


if __name__ == "__main__":
    run_plain(main)
