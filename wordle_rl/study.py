"""Writes the report of a study: python -m wordle_rl.study sweeps/<name>.

Reads results.csv and games.csv.xz, and writes effects.json, the pictures and README.md into the
folder, and what the index beside it says of the studies that it lists; --index adds a study to it.
Keeps the conclusion that a person wrote into README.md.

--power says which difference a study of conf/sweep can find, before it starts.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
from collections.abc import Sequence
from pathlib import Path

from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.files import printable
from wordle_rl.runs.paths import module_command


def write_report(folder: Path, *, listed: bool = False) -> Path:
    """Write the report of a study. Returns its page. Raises ValueError.

    listed: whether the index of studies beside the folder gets it.
    """
    from wordle_rl.references import find_study_references
    from wordle_rl.runs.files import write_bytes, write_json
    from wordle_rl.sweeps import games
    from wordle_rl.sweeps.comparisons import compare, compare_confirmed
    from wordle_rl.sweeps.effect_table import FILE, describe_effects, describes_games
    from wordle_rl.sweeps.index import write_index
    from wordle_rl.sweeps.plots import write_plots
    from wordle_rl.sweeps.reading import read_study
    from wordle_rl.sweeps.report import format_page
    from wordle_rl.sweeps.results import ReportError

    study = read_study(folder)
    if not study.games and describes_games(folder):
        raise ReportError(
            f"{folder / games.FILE}: missing, or without games, from which {folder / FILE} was "
            "computed"
        )
    effects = [*compare(study), *compare_confirmed(study)]
    write_json(folder / FILE, describe_effects(study, effects))
    references = [(one.name, 100 * one.rate) for one in find_study_references(study)]
    pictures = write_plots(study, folder, references, keep=True)
    path = folder / "README.md"
    before = path.read_text(encoding="utf-8") if path.exists() else None
    write_bytes(path, format_page(study, effects, pictures, before, []).encode())
    folder = folder.resolve()
    write_index(folder.parent, folder.name if listed else None)
    return path


def print_power(name: str) -> None:
    """Print which difference a study can find. Raises ValueError.

    name: of a study in conf/sweep, or the folder of a study that ran, which is then its own pilot.
    """
    from wordle_rl.sweeps.power import Power, plan_power, read_plan, refuse_underpowered
    from wordle_rl.sweeps.reading import read_study

    plan = read_plan(name)
    power: Power = plan_power(plan.space, plan.default, plan.analysis, read_study(plan.pilot))
    print("\n".join(power.format_lines()))
    refuse_underpowered(power, plan.name)


def _folder(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError("must be a folder")
    return Path(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = CommandParser(prog=module_command("study"), description="Write the report of a study.")
    parser.add_argument(
        "folder", type=_folder, metavar="FOLDER", help="of the study, sweeps/<name>"
    )
    parser.add_argument(
        "--index", action="store_true", help="also list it in README.md beside its folder"
    )
    parser.add_argument(
        "--power", action="store_true",
        help="print which difference the study finds with a chance of 80 %%; FOLDER may be the "
        "name of a study in conf/sweep",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    with user_errors():
        if options.power:
            print_power(str(options.folder))
            return 0
        page = write_report(options.folder, listed=options.index)
        print(printable(str(page)))
    return 0


if __name__ == "__main__":
    run_plain(main)
