"""Lightning's loggers. They get what the run folder gets: metrics, boards and the outcome."""

from __future__ import annotations

import importlib
import importlib.util
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from wordle_rl.evaluation.game_table import GameTable
from wordle_rl.runs.files import plain
from wordle_rl.runs.libraries import advice
from wordle_rl.training.settings import LoggerSettings

_CHARTS = {  # TensorBoard's custom scalars: several curves in one chart
    "wins": {
        "train and validation": ["Multiline", ["train/win_rate", "val/win_rate"]],
        "watched, greedy": ["Multiline", ["watch/train/win_rate", "watch/test/win_rate"]],
        "regret": ["Multiline", ["skill/regret", "val/skill/regret"]],
    },
    "skill": {
        "guesses that fit the clues": ["Multiline", ["skill/consistency.*"]],
        "guesses that fit all clues, by turn": ["Multiline", ["skill/turn_./consistency"]],
        "bits of the best possible, by turn": ["Multiline", ["skill/turn_./bits_ratio"]],
    },
    "discovery": {
        "plurals": ["Multiline", ["skill/plurals", "val/skill/plurals"]],
        "answers": ["Multiline", ["skill/answer_guesses", "val/skill/answer_guesses"]],
        "rank of the opener": ["Multiline", ["skill/opener_rank", "val/skill/opener_rank"]],
    },
}


class LightningReporter:
    """Passes metrics, texts, tables and histograms to Lightning's loggers."""

    def __init__(self, loggers: list[Logger]) -> None:
        self._loggers = loggers
        self._opened = False  # opened late, so that a failed start leaves no file

    def metrics(self, values: dict[str, float], step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger) and not self._opened:
                logger.experiment.add_custom_scalars(_CHARTS)
            logger.log_metrics(values, step=step)
        self._opened = True

    def continue_from(self, records: list[dict[str, Any]]) -> None:
        """Log the records from before a resume again, for loggers that start a new file."""
        for logger in self._loggers:
            if isinstance(logger, CSVLogger):
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="Experiment logs directory")
                    for record in records:
                        values = {k: v for k, v in record.items() if v is not None}
                        logger.log_metrics(values, step=values.pop("step"))

    def text(self, tag: str, markdown: str, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(tag, markdown, step)
            elif isinstance(logger, WandbLogger):
                logger.log_text(tag, columns=["games"], data=[[markdown]], step=step)

    def table(self, tag: str, table: GameTable, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(tag, table.markdown, step)
            elif isinstance(logger, WandbLogger):
                logger.log_table(tag, columns=table.columns, data=table.rows, step=step)

    def histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_histogram(tag, np.asarray(values), step)
            elif isinstance(logger, WandbLogger):
                # An optional library, so it is imported by name.
                histogram = importlib.import_module("wandb").Histogram(values)
                logger.log_metrics({tag: histogram}, step=step)


def build_loggers(settings: LoggerSettings, folder: Path) -> list[Logger]:
    """The loggers of a run, for its first process."""
    # Under srun, torchrun or jsrun, Lightning's loggers write only in the process with number 0.
    # Here each of those processes is a run of its own.
    rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]
    loggers: list[Logger] = []
    for library, wanted in (("tensorboard", settings.tensorboard), ("wandb", settings.wandb)):
        if wanted and importlib.util.find_spec(library) is None:
            raise ValueError(advice(library))
    if settings.tensorboard:
        loggers.append(TensorBoardLogger(folder, name="", version="tensorboard"))
    if settings.csv:
        csv = CSVLogger(folder, name="", version="csv", flush_logs_every_n_steps=1)
        loggers.append(csv)
    if settings.wandb:
        project = settings.wandb_project
        loggers.append(WandbLogger(name=folder.name, project=project, save_dir=folder))
    return loggers


def log_outcome(loggers: list[Logger], config: dict[str, Any], summary: dict[str, Any]) -> None:
    """Log settings and outcome, for TensorBoard's table of runs."""
    outcome = {f"final/{k}": v for k, v in summary.items() if k in ("win_rate", "val_win_rate")}
    # The loggers' files cannot hold bytes of a path that are not text.
    text = json.dumps(plain(config), ensure_ascii=False).encode("utf-8", "surrogateescape")
    settings = json.loads(text.decode("utf-8", "replace"))
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(settings, outcome)
        else:
            logger.log_hyperparams(settings)
        logger.finalize("success")
