"""Opens TensorBoard with short names of runs: python -m wordle_rl.curves [FOLDER ...]

TensorBoard names a run by its folder, which is long and says little. Here it is the model, what the
command line changed, and when the run began. Runs that begin later appear by themselves. Options
that this command does not know are TensorBoard's own, such as --port 6007.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import fail, run_plain
from wordle_rl.runs.files import FolderError, printable
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.labels import label_run
from wordle_rl.runs.paths import ROOT, module_command

_EVERY = 10.0  # seconds between two looks for new runs
_LONGEST = 120  # characters of a name; file systems allow 255 bytes


def find_curves(folders: Iterable[Path]) -> Iterator[Path]:
    """The run folders with curves at or below these folders."""
    for folder in folders:
        for manifest in sorted(folder.rglob("manifest.json")):
            if (manifest.parent / "tensorboard").is_dir():
                yield manifest.parent


def name_runs(runs: Sequence[Path]) -> dict[str, Path]:
    """A name for each run, unlike all others. A run that cannot be read has its folder's name."""

    def name(run: Path, seconds: bool) -> str:
        with suppress(FolderError, OSError):
            label = label_run(RunFolder.open(run).manifest(), seconds=seconds)
            return printable(label).replace("/", "-")[:_LONGEST]
        return printable(run.name)

    short = {run: name(run, False) for run in dict.fromkeys(runs)}
    many = Counter(short.values())
    names: dict[str, Path] = {}
    for run, label in short.items():
        label = name(run, True) if many[label] > 1 else label
        names[label if label not in names else f"{label} {run.name[-6:]}"] = run
    return names


def link_runs(folders: Sequence[Path], there: Path) -> int:
    """Make `there` a folder of links to the curves of all runs. Returns their number."""
    wanted = name_runs(list(find_curves(folders)))
    for link in there.iterdir():
        if link.name not in wanted:
            link.unlink()
    for name, run in wanted.items():
        link = there / name
        if not link.is_symlink():
            link.symlink_to((run / "tensorboard").resolve(), target_is_directory=True)
    return len(wanted)


def serve(folders: Sequence[Path], options: Sequence[str]) -> int:
    """Run TensorBoard until it ends, and link new runs meanwhile. Returns its exit code."""
    with TemporaryDirectory(prefix="wordle-rl-curves-") as there:
        print(f"{link_runs(folders, Path(there))} runs with curves", flush=True)
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", there, *options]
        process = subprocess.Popen(command)
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_EVERY)
                link_runs(folders, Path(there))
        finally:
            process.terminate()
            process.wait()


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Folders, and TensorBoard's options with their values."""
    folders, options = [], []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        value = before.startswith("-") and "=" not in before and not Path(argument).is_dir()
        (options if argument.startswith("-") or value else folders).append(argument)
    return folders, options


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = CommandParser(
        prog=module_command("curves"),
        description="Open TensorBoard with short names of runs. Other options go to TensorBoard.",
    )
    parser.add_argument(
        "folders", nargs="*", type=Path, default=[ROOT / "outputs"], metavar="FOLDER",
        help="run folders, or folders of runs; default: outputs",
    )  # fmt: skip
    folders, others = split_arguments(sys.argv[1:] if arguments is None else arguments)
    helps = [option for option in others if option in ("-h", "--help")]
    known = parser.parse_args([*folders, *helps])
    for folder in known.folders:
        if not folder.is_dir():
            fail(f"{printable(str(folder))}: no such folder")
    if find_spec("tensorboard") is None:
        fail("TensorBoard is not installed: pip install -c constraints.txt -e .")
    return serve(known.folders, others)


if __name__ == "__main__":
    run_plain(main)
