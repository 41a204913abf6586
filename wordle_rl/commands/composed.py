"""The commands whose settings Hydra composes: train and eval.

Heavy imports happen only once the config is known to be right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from omegaconf import DictConfig

from wordle_rl.runs.config import compose_from_conf, run_hydra
from wordle_rl.runs.errors import user_errors, whole_command
from wordle_rl.runs.launch import read_launch
from wordle_rl.runs.paths import CONF

_HELP = {"-h", "--help"}
_STUDY = {"-m", "--multirun"}


def train() -> None:
    """Run the train command with the arguments in sys.argv.

    Of the processes that torchrun starts, only the first one reads them. Each worker of a study is
    a process of its own, however it was started.
    """
    with user_errors():
        launch = read_launch()
    if launch is not None and launch.rank and not _STUDY & set(sys.argv[1:]):
        with whole_command():
            from wordle_rl.commands.worker import follow_launch

            follow_launch(launch)

    def start(cfg: DictConfig, overrides: Sequence[str]) -> None:
        from wordle_rl.commands.train import train

        train(cfg, overrides)

    _run("config", start)


def evaluate() -> None:
    """Run the eval command with the arguments in sys.argv."""

    def start(cfg: DictConfig, overrides: Sequence[str]) -> None:
        from wordle_rl.commands.eval import evaluate

        evaluate(cfg, overrides)

    _run("eval", start)


def _run(config_name: str, start: Callable[[DictConfig, Sequence[str]], Any]) -> None:
    """Compose a config from conf/ and the command line, and start the command with it."""
    import hydra
    from hydra.core.hydra_config import HydraConfig

    def main(cfg: DictConfig) -> None:
        with whole_command():  # Hydra adds a line about an error that leaves this function
            start(cfg, HydraConfig.get().overrides.task)

    decorate = hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)
    asked = _HELP & set(sys.argv[1:])
    run_hydra((lambda: print_help(config_name)) if asked else decorate(main))


def print_help(config_name: str) -> None:
    """Print the page of --help for the settings in sys.argv."""
    from hydra import compose

    from wordle_rl.commands.help import format_help

    overrides = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    with compose_from_conf():
        cfg = compose(config_name, overrides=overrides, return_hydra_config=True)
    print(format_help(config_name, cfg))
