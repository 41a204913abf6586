"""wordle-rl report: the page of one run, or of several beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wordle_rl.runs.folder import RunFolder


def report(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN ...", help="Run folders; latest is the newest.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the page; by default into the folder of a run, or beside "
            "the first of several as comparison.html."
        ),
    ] = None,
) -> None:
    """Write the page of a run, or of several runs beside each other."""
    from wordle_rl.reports.page import write_report
    from wordle_rl.runs.folder import find_run

    folders = [find_run(run, root=Path()).path for run in runs]
    print(write_report(folders, default_settings(), output))


def default_settings() -> dict[str, str]:
    """The settings of python train.py without any argument."""
    from wordle_rl.commands.build import resolve
    from wordle_rl.runs.config import compose_config, flatten

    return flatten(resolve(compose_config("config")))


def write_page(folder: RunFolder) -> None:
    """Write a run's page and print its path. The run is saved, so a failure is a warning."""
    import sys

    try:
        from wordle_rl.reports.page import write_report

        print(f"report: {write_report([folder.path], default_settings())}", flush=True)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"warning: no report.html ({reason})", file=sys.stderr, flush=True)
