"""wordle-rl study: judges a study from its files, or says what one can find."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    from wordle_rl.runs.paths import ROOT

    if power:
        from wordle_rl.sweeps.power import check_power

        return check_power(_plan(name))
    from wordle_rl.sweeps.page import write_study

    places = [Path(name), ROOT / "outputs" / "sweeps" / name, ROOT / "sweeps" / name]
    place = next((one for one in places if (one / "study.json").is_file()), places[0])
    print(write_study(place))


def _plan(name: str) -> Any:
    """The study of a file in conf/sweep. Raises ConfigError."""
    from hydra import compose
    from omegaconf import OmegaConf

    from wordle_rl.runs.config import compose_from_conf
    from wordle_rl.runs.instantiate import check_choice
    from wordle_rl.sweeps.plan import list_studies, plan_study

    check_choice("STUDY", name, tuple(list_studies()))
    with compose_from_conf():
        config = compose("config", overrides=[f"sweep={name}"], return_hydra_config=True)
    node: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    return plan_study(node, [], lambda _: {})
