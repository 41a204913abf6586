"""Lightning's loggers. They get the metrics, boards and settings of a run under the same names.

docs/METRICS.md explains the metrics.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import Logger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import WandbLogger

from wordle_rl.runs.errors import advice
from wordle_rl.runs.files import plain
from wordle_rl.training.experiment import LoggerSettings


class LightningReporter:
    """Passes metrics and texts to Lightning's loggers."""

    def __init__(self, loggers: list[Logger]) -> None:
        self._loggers = loggers

    def metrics(self, values: dict[str, float], step: int) -> None:
        for logger in self._loggers:
            logger.log_metrics(values, step=step)

    def text(self, tag: str, markdown: str, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(tag, markdown, step)
            elif isinstance(logger, WandbLogger):
                logger.log_text(tag, columns=["games"], data=[[markdown]], step=step)


def build_loggers(settings: LoggerSettings, folder: Path) -> list[Logger]:
    """The loggers of a run, for its first process."""
    # Under srun, torchrun or jsrun, Lightning's loggers write only in the process with number 0.
    # Here each of those processes is a run of its own.
    rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]
    for library, wanted in (("tensorboard", settings.tensorboard), ("wandb", settings.wandb)):
        if wanted and importlib.util.find_spec(library) is None:
            raise ValueError(advice(library))
    loggers: list[Logger] = []
    if settings.tensorboard:
        # TensorBoard calls a run by the folder of its events, so they lie in the run folder itself.
        loggers.append(TensorBoardLogger(folder, name="", version="", default_hp_metric=False))
    if settings.wandb:
        project = settings.wandb_project
        loggers.append(WandbLogger(name=folder.name, project=project, save_dir=folder))
    return loggers


def finish_loggers(loggers: list[Logger], config: dict[str, Any]) -> None:
    """Log the settings of a finished run, and flush everything."""
    for logger in loggers:
        logger.log_hyperparams(plain(config))
        logger.finalize("success")
