"""Lightning's loggers. They get the metrics, boards and settings of a run under the same names.

docs/METRICS.md explains the metrics.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from lightning.fabric.loggers.logger import Logger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import WandbLogger

from wordle_rl.runs.config import flatten
from wordle_rl.runs.files import plain
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.experiment import LoggerSettings

_FIRST = "0_wins/"  # before what shows learning in TensorBoard, which sorts groups by name
_WORDS = "skill/turn_2/expected_remaining"  # moves before wins do, and so leads as on the terminal
_ALWAYS = re.compile("win_rate|^report/")  # curves that show while they are flat
# Metrics beside the settings in TensorBoard's HPARAMS.
_SHOWN = (
    *(f"{_FIRST}{name}/win_rate" for name in ("report", "val", "train")),
    *(f"{name}/mean_guesses_with_losses" for name in ("report", "val")),
)


class LightningReporter:
    """Passes metrics and texts to Lightning's loggers.

    TensorBoard gets the config, too, and no flat curves: one is held back until it moves.
    """

    def __init__(self, loggers: list[Logger], config: dict[str, Any] | None = None) -> None:
        self._loggers, self._config = loggers, config
        self._held: dict[str, list[tuple[str, float, int]] | None] = {}  # None once it moved

    def metrics(self, values: dict[str, float], step: int) -> None:
        moving = self._find_moving(values, step)
        for logger in self._loggers:
            if not isinstance(logger, TensorBoardLogger):
                logger.log_metrics(values, step=step)
                continue
            if step == 0:
                lines = "\n".join(f"{k}={v}" for k, v in flatten(self._config or {}).items())
                logger.experiment.add_text("config", f"```\n{lines}\n```", step)
            for name, value, at in moving:
                tag = f"{_FIRST}{name}" if "win_rate" in name or name == _WORDS else name
                logger.log_metrics({tag: value}, step=at)

    def _find_moving(self, values: dict[str, float], step: int) -> list[tuple[str, float, int]]:
        """The points of curves that move, with those that were held back until now."""
        found = []
        for name, value in values.items():
            point, held = (name, value, step), self._held.setdefault(name, [])
            if held is None:
                found.append(point)
            elif held.append(point) or value != held[0][1] or _ALWAYS.search(name):
                found += held
                self._held[name] = None
        return found

    def text(self, tag: str, markdown: str, step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(tag, markdown, step)
            elif isinstance(logger, WandbLogger):
                logger.log_text(tag, columns=["games"], data=[[markdown]], step=step)

    def histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        for logger in self._loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_histogram(tag, np.array(values), step)

    def games(self, records: Sequence[Mapping[str, Any]], step: int) -> None:
        heads = ["won", "secret", "guesses", "feedback"]
        rows = [[one["won"], *(str(one[name]) for name in heads[1:])] for one in records]
        for logger in self._loggers:
            if isinstance(logger, WandbLogger):
                logger.log_table("all validation games", heads, rows, step=step)

    def cut_back(self, step: int, kept: Iterable[Mapping[str, Any]]) -> None:
        boards = [logger for logger in self._loggers if isinstance(logger, TensorBoardLogger)]
        for logger in boards:  # its writer opens with the first metric
            logger._kwargs["purge_step"] = step + 1
        for row in kept if boards else ():
            self._find_moving({k: v for k, v in row.items() if v is not None}, row["step"])


def build_loggers(settings: LoggerSettings, folder: RunFolder) -> list[Logger]:
    """The loggers of a run, for its first process."""
    # Under srun, torchrun or jsrun, Lightning's loggers write only in the process with number 0.
    # Here each of those processes is a run of its own.
    rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]
    loggers: list[Logger] = []
    if settings.tensorboard:
        # TensorBoard calls a run by the folder of its events, so they lie in the run folder itself.
        loggers.append(TensorBoardLogger(folder.path, name="", version=""))
    if settings.wandb:
        name, number = folder.path.name, folder.manifest().get("id")  # the same for a resumed run
        project, save = os.environ.get("WANDB_PROJECT", "wordle-rl"), folder.path
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
