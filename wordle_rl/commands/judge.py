"""wordle-rl judge: judges a study from its files, or says what one can find.

python train.py -m sweep=<study> runs a study, see wordle_rl/sweeps/run.py.
"""

from pathlib import Path
from typing import Annotated, Any

import typer


def judge(
    name: Annotated[
        str, typer.Argument(metavar="STUDY", help="Folder of a study, or its name in conf/sweep.")
    ],
    power: Annotated[
        bool, typer.Option("--power", help="Print which difference it finds with a chance of 80 %.")
    ] = False,
    figure: Annotated[
        Path | None, typer.Option(help="Also write the page's picture here, as .svg, .pdf or .png.")
    ] = None,
) -> None:
    """Write the page of a study from its trials and games, or say what it can find."""
    from omegaconf import OmegaConf

    from wordle_rl.runs.config import compose_config
    from wordle_rl.runs.figures import save_figure
    from wordle_rl.runs.instantiate import check_choice
    from wordle_rl.runs.paths import ROOT
    from wordle_rl.sweeps.plan import list_studies, plan_study
    from wordle_rl.sweeps.power import tell_power
    from wordle_rl.sweeps.readme import draw_study, write_page
    from wordle_rl.sweeps.run import print_verdicts
    from wordle_rl.sweeps.verdicts import read_study

    if power:
        check_choice("STUDY", name, tuple(list_studies()))
        config = compose_config("config", [f"sweep={name}"], with_hydra=True)
        node: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
        return tell_power(plan_study(node, [], lambda _: {}))
    folders = [Path(name), ROOT / "outputs" / "sweeps" / name, ROOT / "sweeps" / name]
    folder = next((p for p in folders if (p / "study.json").is_file()), folders[0])
    if figure is not None:
        check_choice("the ending of --figure", figure.suffix, (".svg", ".pdf", ".png"))
    page = write_page(folder)
    print_verdicts(folder)
    if figure is not None and (picture := draw_study(read_study(folder))) is not None:
        save_figure(picture, figure)
        print(f"picture: {figure}")
    print(f"report: {page}")
