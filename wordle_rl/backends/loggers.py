"""TensorBoard and Weights & Biases. They get metrics, boards and settings under the same names.

docs/METRICS.md explains the metrics. Only Weights & Biases need Lightning, which takes seconds.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wordle_rl.runs.config import flatten
from wordle_rl.runs.files import plain
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.experiment import LoggerSettings

_PREFIX = "0_wins/"  # before what shows learning in TensorBoard, which sorts groups by name
_WORDS = "skill/turn_2/expected_remaining"  # moves before wins do, and so leads as on the terminal
_FLAT_CURVES = re.compile("win_rate|^report/")  # curves that show while they are flat
# Metrics beside the settings in TensorBoard's HPARAMS.
_METRICS = (
    *(f"{_PREFIX}{name}/win_rate" for name in ("report", "val", "train")),
    *(f"{name}/mean_guesses_with_losses" for name in ("report", "val")),
)


class TensorBoard:
    """Events in a folder, written from the first metric on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.purge_step: int | None = None  # what was written from this step on is void

    @cached_property
    def experiment(self) -> Any:
        from torch.utils.tensorboard.writer import SummaryWriter

        return SummaryWriter(str(self._folder), purge_step=self.purge_step)


class LoggersReporter:
    """Passes metrics and texts to TensorBoard and to Lightning's logger of Weights & Biases.

    TensorBoard gets the config, too, and no flat curves: one is held back until it moves.
    """

    def __init__(self, loggers: list[Any], config: dict[str, Any] | None = None) -> None:
        self._loggers, self._config = loggers, config
        self._buffers: dict[str, list[tuple[str, float, int]] | None] = {}  # None once it moved

    def metrics(self, values: dict[str, float], step: int) -> None:
        points = self._find_points(values, step)
        for logger in self._loggers:
            if not isinstance(logger, TensorBoard):
                logger.log_metrics(values, step=step)
                continue
            if step == 0:
                lines = "\n".join(f"{k}={v}" for k, v in flatten(self._config or {}).items())
                logger.experiment.add_text("config", f"```\n{lines}\n```", step)
            for name, value, point_step in points:
                tag = f"{_PREFIX}{name}" if "win_rate" in name or name == _WORDS else name
                logger.experiment.add_scalar(tag, value, point_step)

    def _find_points(self, values: dict[str, float], step: int) -> list[tuple[str, float, int]]:
        """The points of curves that move, with those that were held back until now."""
        points = []
        for name, value in values.items():
            point, buffer = (name, value, step), self._buffers.setdefault(name, [])
            if buffer is None:
                points.append(point)
            elif buffer.append(point) or value != buffer[0][1] or _FLAT_CURVES.search(name):
                points += buffer
                self._buffers[name] = None
        return points

    def text(self, tag: str, markdown: str, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoard):
                logger.experiment.add_text(tag, markdown, step)
            else:
                logger.log_text(tag, columns=["games"], data=[[markdown]], step=step)

    def histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoard):
                logger.experiment.add_histogram(tag, np.array(values), step)

    def games(self, records: Sequence[Mapping[str, Any]], step: int) -> None:
        heads = ["won", "secret", "guesses", "feedback"]
        rows = [[record["won"], *(str(record[name]) for name in heads[1:])] for record in records]
        for logger in self._loggers:
            if not isinstance(logger, TensorBoard):
                logger.log_table("all validation games", heads, rows, step=step)

    def cut_back(self, step: int, kept: Iterable[Mapping[str, Any]]) -> None:
        boards = [logger for logger in self._loggers if isinstance(logger, TensorBoard)]
        for logger in boards:
            logger.purge_step = step + 1
        for row in kept if boards else ():
            self._find_points({k: v for k, v in row.items() if v is not None}, row["step"])


def build_loggers(settings: LoggerSettings, folder: RunFolder) -> list[Any]:
    """The loggers of a run, for its first process."""
    loggers: list[Any] = []
    if settings.tensorboard:
        # TensorBoard calls a run by the folder of its events, so they lie in the run folder itself.
        loggers.append(TensorBoard(folder.path))
    if settings.wandb:
        from lightning.fabric.utilities.rank_zero import rank_zero_only
        from lightning.pytorch.loggers import WandbLogger

        # Under srun, torchrun or jsrun, it writes only in the process with number 0. Here each of
        # those processes is a run of its own.
        rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]
        name, number = folder.path.name, folder.manifest().get("id")  # the same for a resumed run
        project, path = os.environ.get("WANDB_PROJECT", "wordle-rl"), folder.path
        loggers.append(WandbLogger(name, path, id=number, project=project, resume="allow"))
    return loggers


def finish_loggers(loggers: list[Any], config: dict[str, Any]) -> None:
    """Log the settings of a finished run, and flush everything."""
    from torch.utils.tensorboard.summary import hparams

    settings = {key: _as_number(text) for key, text in flatten(config).items()}
    for logger in loggers:
        if isinstance(logger, TensorBoard):
            # SummaryWriter.add_hparams() would write into a folder of its own.
            for part in hparams(settings, dict.fromkeys(_METRICS, 0.0)):
                logger.experiment._get_file_writer().add_summary(part)
            logger.experiment.close()
        else:
            logger.log_hyperparams(plain(config))
            logger.finalize("success")


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
