"""wordle-rl study: judges a study from its files, or says what one can find."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def study(
    name: Annotated[
        str, typer.Argument(metavar="STUDY", help="Folder of a study, or its name in conf/sweep.")
    ],
    power: Annotated[
        bool,
        typer.Option("--power", help="Print which difference it finds with a chance of 80 %."),
    ] = False,
) -> None:
    """Write the page of a study from its trials and games, or say what it can find."""
    if power:
        from wordle_rl.sweeps.power import forecast, refuse_underpowered

        found = forecast(name)
        print("\n".join(found.format_lines()))
        refuse_underpowered(found, Path(name).name)
        return
    from wordle_rl.runs.paths import ROOT
    from wordle_rl.sweeps.page import write_study

    places = [Path(name), ROOT / "outputs" / "sweeps" / name, ROOT / "sweeps" / name]
    place = next((one for one in places if (one / "study.json").is_file()), places[0])
    print(write_study(place))
