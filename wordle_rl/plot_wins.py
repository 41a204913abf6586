"""Pictures of how a run learns: python -m wordle_rl.plot_wins outputs/<run> [--out PNG].

One run: the share of games won over steps, on training and validation secrets, and the reports on
the test secrets, beside the start, the teacher and the optimum. With trainer.watch_every, also the
gap between training and test secrets. --beside adds the solvers that eval.py played, --guesses the
mean guesses, --totals the games won so far. Several runs: their validation curves in one picture, a
panel for each from six runs on. A .jsonl file of metrics will do in place of a run folder. It also
works while a run trains. Needs matplotlib.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wordle_rl.pictures import one_line_errors, plain_text, read_solvers
from wordle_rl.references import read_references
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.paths import module_command
from wordle_rl.runs.untrusted import printable
from wordle_rl.win_curves import WinCurves, read_curves
from wordle_rl.win_pictures import draw_run, draw_runs


def _distinct_names(runs: Sequence[WinCurves], folders: Sequence[Path]) -> list[WinCurves]:
    """Runs of the same name are labelled with their paths."""
    names = [curves.name for curves in runs]
    return [
        replace(curves, name=plain_text(str(folder))) if names.count(curves.name) > 1 else curves
        for curves, folder in zip(runs, folders, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = CommandParser(
        prog=module_command("plot_wins"), description="Draw the wins of a run as a PNG."
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN",
        help="run folders, or .jsonl files of metrics",
    )  # fmt: skip
    parser.add_argument(
        "--output",
        "--out",
        dest="out",
        type=Path,
        metavar="PNG",
        help="where to write; default <RUN>/wins.png, or wins.png beside the first of several runs "
        "or beside a file",
    )
    parser.add_argument("--title", default="", help="default: the name of the run")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="EVAL",
        help="folder that eval.py wrote, whose solvers are drawn beside a single run",
    )
    parser.add_argument("--guesses", action="store_true", help="also draw the mean guesses")
    parser.add_argument("--totals", action="store_true", help="also draw the games won so far")
    options = parser.parse_args(arguments)
    first = options.runs[0]
    several = len(options.runs) > 1
    if several and options.beside is not None:
        parser.error("--beside takes a single run")
    if several and options.guesses:
        parser.error("--guesses takes a single run")
    beside = several or first.suffix == ".jsonl"
    out = options.out or (first.parent if beside else first) / "wins.png"
    with one_line_errors(out):
        runs = [read_curves(source) for source in options.runs]
        found = {read_references(path if path.is_dir() else path.parent) for path in options.runs}
        references = found.pop() if len(found) == 1 else ()
        if several:
            draw_runs(
                _distinct_names(runs, options.runs), out, title=options.title, references=references
            )
        else:
            solvers = None if options.beside is None else read_solvers(options.beside)
            panels = {"guesses": options.guesses, "totals": options.totals}
            draw_run(
                runs[0], out, title=options.title, references=references, solvers=solvers, **panels
            )
    print(printable(str(out)))
    return 0


if __name__ == "__main__":
    run_plain(main)
