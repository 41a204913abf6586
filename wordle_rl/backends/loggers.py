"""Lightning's loggers. They get what the run folder gets: metrics, boards and the outcome.

TensorBoard and Weights & Biases show names that are sorted by what matters. They come from
training/metric_table.py. Lightning's CSV logger keeps the names of metrics.jsonl.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from wordle_rl.evaluation.boards import GameTable
from wordle_rl.runs.errors import advice
from wordle_rl.runs.files import plain
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.labels import list_changes
from wordle_rl.training.cards import Cards
from wordle_rl.training.metric_names import tag_of
from wordle_rl.training.metric_table import FLAT, REPORT
from wordle_rl.training.settings import LoggerSettings

_CHARTS = {  # TensorBoard's custom scalars: several curves in one chart, by keys or patterns
    "wins": {
        "training and validation": ("train/win_rate", "val/win_rate"),
        "watched, greedy": ("watch/train/win_rate", "watch/test/win_rate"),
        "regret": ("skill/regret", "val/skill/regret"),
    },
    "time": {"seconds of each part of a step": ("time/.*",)},
    "skill": {
        "guesses that fit the clues": (
            *("skill/consistency", "skill/consistency_placed"),
            *("skill/consistency_elsewhere", "skill/consistency_absent"),
        ),
        "guesses that fit all clues, by turn": ("skill/turn_./consistency",),
        "bits of the best possible, by turn": ("skill/turn_./bits_ratio",),
    },
    "discovery": {
        "plurals": ("skill/plurals", "val/skill/plurals"),
        "answers": ("skill/answer_guesses", "val/skill/answer_guesses"),
        "rank of the opener": ("skill/opener_rank", "val/skill/opener_rank"),
    },
}
# Parts of a config that tell runs apart, as columns of TensorBoard's table of runs.
_GROUPS = ("model", "algorithm", "reward", "curriculum", "rollout", "history", "prompt", "optim")
_VALUES = {
    "seed": ("seed",),
    "num_generations": ("rollout", "num_generations"),
    "groups": ("rollout", "groups"),
    "lr": ("optim", "lr"),
    "steps": ("trainer", "steps"),
}


class LightningReporter:
    """Passes metrics, texts, tables and histograms to Lightning's loggers."""

    def __init__(self, loggers: list[Logger]) -> None:
        self._loggers = loggers
        self._opened = False  # opened late, so that a failed start leaves no file
        self._cards = Cards(FLAT)

    def metrics(self, values: dict[str, float], step: int) -> None:
        due = self._cards.add(step, values)
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                if not self._opened:
                    logger.experiment.add_custom_scalars(_layout())
                for at, points in groupby(due, key=lambda entry: entry[1][0]):
                    logger.log_metrics({tag_of(k): value for k, (_, value) in points}, step=at)
            elif isinstance(logger, WandbLogger):
                logger.log_metrics({tag_of(k): value for k, value in values.items()}, step=step)
            else:
                logger.log_metrics(values, step=step)
        self._opened = True

    def continue_from(self, records: list[dict[str, Any]]) -> None:
        """Take over the records from before a resume.

        Loggers that start a new file get them again. TensorBoard has all but the curves that wait
        for a second value.
        """
        for record in records:
            values = {k: v for k, v in record.items() if v is not None}
            step = values.pop("step")
            self._cards.add(step, values)
            for logger in self._loggers:
                if isinstance(logger, CSVLogger):
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", message="Experiment logs directory")
                        logger.log_metrics(values, step=step)

    def text(self, tag: str, markdown: str, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(tag_of(tag), markdown, step)
            elif isinstance(logger, WandbLogger):
                logger.log_text(tag_of(tag), columns=["games"], data=[[markdown]], step=step)

    def table(self, tag: str, table: GameTable, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(tag_of(tag), table.markdown, step)
            elif isinstance(logger, WandbLogger):
                logger.log_table(tag_of(tag), columns=table.columns, data=table.rows, step=step)

    def histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_histogram(tag_of(tag), np.asarray(values), step)
            elif isinstance(logger, WandbLogger):
                # An optional library, so it is imported by name.
                histogram = importlib.import_module("wandb").Histogram(values)
                logger.log_metrics({tag_of(tag): histogram}, step=step)


def build_loggers(settings: LoggerSettings, folder: Path, label: str = "") -> list[Logger]:
    """The loggers of a run, for its first process.

    label: what TensorBoard shows beside the name of the folder.
    """
    # Under srun, torchrun or jsrun, Lightning's loggers write only in the process with number 0.
    # Here each of those processes is a run of its own.
    rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]
    loggers: list[Logger] = []
    for library, wanted in (("tensorboard", settings.tensorboard), ("wandb", settings.wandb)):
        if wanted and importlib.util.find_spec(library) is None:
            raise ValueError(advice(library))
    if settings.tensorboard:
        loggers.append(
            TensorBoardLogger(folder, name="tensorboard", version=label.replace("/", "-"))
        )
    if settings.csv:
        csv = CSVLogger(folder, name="", version="csv", flush_logs_every_n_steps=1)
        loggers.append(csv)
    if settings.wandb:
        project = settings.wandb_project
        loggers.append(WandbLogger(name=folder.name, project=project, save_dir=folder))
    return loggers


def log_outcome(
    loggers: list[Logger], folder: RunFolder, config: dict[str, Any], summary: dict[str, Any]
) -> None:
    """Log the settings of a finished run, and how the test went before and after."""
    # The loggers' files cannot hold bytes of a path that are not text.
    text = json.dumps(plain(config), ensure_ascii=False).encode("utf-8", "surrogateescape")
    settings = json.loads(text.decode("utf-8", "replace"))
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            _log_report(logger, summary)
            _log_row(logger, choose_columns(folder.manifest(), settings))
        else:
            logger.log_hyperparams(settings)
        logger.finalize("success")


def choose_columns(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a run apart: its choices, a few values, and what its command line set."""
    chosen = manifest.get("choices", {})
    columns = {group: chosen[group] for group in _GROUPS if group in chosen}
    for name, path in _VALUES.items():
        value: Any = config
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        columns[name] = value
    known = {".".join(path) for path in _VALUES.values()} | set(columns)
    changes = {k: v for k, v in list_changes(manifest).items() if k not in known}
    return {k: v for k, v in (columns | changes).items() if v is not None}


def _log_report(logger: TensorBoardLogger, summary: Mapping[str, Any]) -> None:
    """Draw the wins on test secrets from the start to the best checkpoint, if it is a later one."""
    start, step = summary.get("start"), summary.get("exported_step", 0)
    if start is not None and step:
        logger.log_metrics({tag_of(REPORT): start["win_rate"]}, step=0)
        logger.log_metrics({tag_of(REPORT): summary["win_rate"]}, step=step)


def _log_row(logger: TensorBoardLogger, columns: dict[str, Any]) -> None:
    """Add the run to TensorBoard's table of runs, with columns that exist as curves."""
    from torch.utils.tensorboard.summary import hparams

    # Their values are read from the curves; Lightning's own way would add a point to each.
    outcome = dict.fromkeys(map(tag_of, (REPORT, "val/win_rate", "val/reward")), 0.0)
    writer = logger.experiment._get_file_writer()
    for part in hparams(columns, outcome):
        writer.add_summary(part)
    logger.hparams.update(columns)  # for hparams.yaml


def _layout() -> dict[str, dict[str, list[Any]]]:
    """The charts. TensorBoard draws every curve whose name begins with a pattern's match."""
    return {
        category: {
            title: ["Multiline", [f"{tag_of(key)}$" for key in keys]]
            for title, keys in charts.items()
        }
        for category, charts in _CHARTS.items()
    }
