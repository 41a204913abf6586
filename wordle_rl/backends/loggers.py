"""Lightning's loggers. They get the metrics, boards and settings of a run under the same names.

docs/METRICS.md explains the metrics.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from lightning.fabric.loggers.logger import Logger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import WandbLogger

from wordle_rl.runs.config import flatten
from wordle_rl.runs.errors import advice
from wordle_rl.runs.files import plain
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.experiment import LoggerSettings

# Metrics beside the settings in TensorBoard's HPARAMS.
_SHOWN = ("val/win_rate", "val/mean_guesses_with_losses", "train/win_rate")


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

    def cut_back(self, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):  # its writer opens with the first metric
                logger._kwargs["purge_step"] = step + 1


def build_loggers(settings: LoggerSettings, folder: RunFolder) -> list[Logger]:
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
        loggers.append(TensorBoardLogger(folder.path, name="", version=""))
    if settings.wandb:
        name, number = (
            folder.path.name,
            folder.manifest().get("id"),
        )  # a resumed run is the same there
        project, save = settings.wandb_project, folder.path
        loggers.append(WandbLogger(name, save, id=number, project=project, resume="allow"))
    return loggers


def finish_loggers(loggers: list[Logger], config: dict[str, Any]) -> None:
    """Log the settings of a finished run, and flush everything."""
    from torch.utils.tensorboard.summary import hparams

    settings = {key: _as_number(text) for key, text in flatten(config).items()}
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            # Its log_hyperparams() would write only beside new scalars.
            for part in hparams(settings, dict.fromkeys(_SHOWN, 0.0)):
                logger.experiment._get_file_writer().add_summary(part)
        else:
            logger.log_hyperparams(plain(config))
        logger.finalize("success")


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
