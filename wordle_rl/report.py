"""Writes the page of a run: python -m wordle_rl.report <run> [<run> ...] [--output HTML].

A training run writes its page at its end. Several runs make one page that compares them, secret by
secret. Also works for runs that train, stopped or are damaged.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.pictures import one_line_errors
from wordle_rl.reports.comparison_page import comparison_page
from wordle_rl.reports.run import Run, Setting, read_run
from wordle_rl.reports.run_page import run_page
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.config import compose_from_conf
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.files import write_bytes
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.listing import find_run
from wordle_rl.runs.paths import ROOT, module_command
from wordle_rl.runs.untrusted import FolderError, printable

PAGE = "report.html"  # in the folder of a run or a study
_SEVERAL = "comparison.html"  # beside the first of several runs
_SAME = ("output_dir", "resume", "restart")  # settings that say nothing about a run


def write_run_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a run. Returns its path. out: None for report.html in the folder."""
    out = out or folder / PAGE
    _write(out, run_page(_read(folder)))
    return out


def changed_settings(folder: RunFolder) -> list[Setting] | None:
    """The settings of a run that differ from the default. None if its config cannot be read."""
    from wordle_rl.build import resolve
    from wordle_rl.earlier_run import read_saved_config

    try:
        saved = dict(_flat(resolve(read_saved_config(folder))))
    except (ConfigError, FolderError):
        return None
    default = dict(_flat(_default_config()))
    return [
        Setting(key, default.get(key, ""), saved.get(key, ""))
        for key in dict.fromkeys([*saved, *default])
        if key not in _SAME and saved.get(key, "") != default.get(key, "")
    ]


def _default_config() -> dict[str, Any]:
    """The config of python train.py without any setting."""
    from hydra import compose

    from wordle_rl.build import resolve

    with compose_from_conf():  # at the end of a training run, Hydra still runs
        return resolve(compose("config"))


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every single value with its key, as it is written on the command line."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{prefix}{name}", text


def _read(folder: Path) -> Run:
    return read_run(folder, changed_settings(RunFolder.open(folder)))


def _write(out: Path, page: str) -> None:
    # Texts of a run may hold halves of surrogate pairs, which have no UTF-8.
    write_bytes(out, page.encode("utf-8", "replace"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = CommandParser(
        prog=module_command("report"),
        description="Write the page of a run, or of several runs beside each other.",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN",
        help="run folder, or several; latest is the newest in outputs",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="HTML",
        help=f"where to write; default <RUN>/{PAGE}, or {_SEVERAL} beside the first of several",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    with user_errors():
        folders = [
            find_run(given, "run", Path(), ROOT / "outputs").path for given in options.runs
        ]  # fmt: skip
    out = options.output or (
        folders[0] / PAGE if len(folders) == 1 else folders[0].resolve().parent / _SEVERAL
    )
    with user_errors(), one_line_errors(out):
        if len(folders) == 1:
            write_run_report(folders[0], out)
        else:
            _write(out, comparison_page([_read(folder) for folder in folders]))
    print(printable(str(out)))
    return 0


if __name__ == "__main__":
    run_plain(main)
