"""Collects a study into its notebook: python -m wordle_rl.study sweeps/<name> [--storage URL].

Writes results.csv, the pictures and README.md into the folder, and its line into the index beside
it. A conclusion in README.md is a person's and stays. Also works while a study runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wordle_rl.untrusted import printable


def collect(folder: Path, url: str | None = None) -> Path:
    """Make the notebook of a study. Returns its page. Raises ValueError."""
    from wordle_rl.json_files import write_bytes
    from wordle_rl.sweeps import notebook, plots
    from wordle_rl.sweeps.results import read_study

    study = read_study(folder, url)
    write_bytes(folder / "results.csv", notebook.csv_text(study).encode())
    pictures = plots.draw(study, folder)
    path = folder / "README.md"
    before = path.read_text(encoding="utf-8") if path.exists() else None
    write_bytes(path, notebook.page(study, pictures, before).encode())
    notebook.write_index(folder.resolve().parent)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code, 2 after a one-line error."""
    parser = argparse.ArgumentParser(
        prog="python -m wordle_rl.study", description="Collect a study into its notebook folder."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the study, sweeps/<name>")
    parser.add_argument("--storage", metavar="URL", help="where the trials are; with a password")
    options = parser.parse_args(arguments)
    try:
        page = collect(options.folder, options.storage)
    except (ValueError, OSError, ImportError) as error:
        print("error: " + printable(" ".join(str(error).split())), file=sys.stderr)
        return 2
    print(printable(str(page)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
