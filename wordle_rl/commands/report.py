"""wordle-rl report: the page of one run or of several, or the curves of a file of metrics."""

import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from wordle_rl.runs.config import compose_config, flatten, list_brought, read_config
from wordle_rl.runs.folder import RunFolder, find_run
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import shorten
from wordle_rl.runs.progress import announce


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN ...", help="Run folders; latest is the newest. Or a metrics.jsonl."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the page; by default into the folder of a run, or beside "
            "the first of several as comparison.html, and beside metrics.jsonl as metrics.png."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Of a metrics.jsonl, the curves to draw, as in val/*.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Reference runs to draw one run beside, such as demo: the page has their band, "
            "and the terminal says where the run leaves it."
        ),
    ] = None,
) -> None:
    """Write the page of one run, or of several, or a picture of the curves of any metrics.jsonl."""
    if [Path(run).is_file() for run in runs] == [True]:
        from wordle_rl.reports.curves import draw_file

        print(*draw_file(Path(runs[0]), only or (), output), sep="\n")
        return
    if only:
        raise ConfigError("--only is for a file of metrics, such as <run>/metrics.jsonl")
    from wordle_rl.reports.page import write_report

    folders = [find_run(run, root=Path()) for run in runs]
    pictures, lines = [], []
    if reference is not None:
        from wordle_rl.reports.reference import compare, describe, draw_bands

        if len(folders) > 1:
            raise ConfigError("--reference is for one run")
        comparison = compare(reference, folders[0].log("metrics").read())
        pictures, lines = draw_bands(comparison), describe(comparison)
    with announce("writing the report"):
        defaults = default_settings(folders[0])  # which the page of several runs leaves out
        page = write_report([folder.path for folder in folders], defaults, output, pictures)
    print(*lines, page, sep="\n")


@cache  # a run writes its page again and again
def default_settings(folder: RunFolder) -> dict[str, str]:
    """What the settings of a run were before its user changed any.

    Those of the run that it started from, or else of its model and its experiment.
    """
    from wordle_rl.commands.build import resolve

    manifest = folder.manifest()
    if (start := manifest.get("init_from")) and Path(start["run"]).is_dir():
        return flatten(read_config(Path(start["run"])))
    choices = manifest.get("choices", {})
    groups = [group for group in ("model", "experiment") if list_brought(group, choices.get(group))]
    overrides = [f"{group}={choices[group]}" for group in groups]
    cfg = compose_config("config", overrides)
    if choices.get("model") == "pretrained":
        cfg.model.path = "a hub name or a folder"
    return flatten(resolve(cfg))


def write_page(folder: RunFolder, *, trains: bool = False) -> None:
    """Write a run's page and print its path. The run is saved, so a failure is a warning.

    trains: whether the run still writes it at each validation, so that it is told only once.
    """
    try:
        from wordle_rl.reports.page import PAGE, write_report

        told = trains and (folder.path / PAGE).exists()
        with announce("writing the report"):
            page = write_report([folder.path], default_settings(folder))
        if not told:
            note = ", written at each validation" if trains else ""
            print(f"report: {shorten(page)}{note}", flush=True)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"warning: no report.html ({reason})", file=sys.stderr, flush=True)
