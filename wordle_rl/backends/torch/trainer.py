"""Lightning's Trainer runs a training: the module's training_step is one GRPO step of ours.

Optimisation is manual, a batch is the number of a step, and a run is one epoch. trainer.global_step
counts the steps of the run, also after a resume. self.log() gets what steps and validations
measure, under the names of docs/METRICS.md, and what callbacks log joins the row of their step.
Draws, sums of gradients, checkpoints, logs and signals stay the run's own: this Trainer moves no
model, starts no process, and writes only what a callback asks for. Only the first process has one.
"""

import logging
import math
import signal
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelSummary, ProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import SingleDeviceStrategy

from wordle_rl.backends.torch.machine import TorchMachine
from wordle_rl.policy.policy import Policy
from wordle_rl.runs.files import FolderError
from wordle_rl.runs.instantiate import instantiate_foreign
from wordle_rl.training.failures import CallbackFailed
from wordle_rl.training.loop import Training

_STATES = "callbacks.pt"  # in a checkpoint's folder: what the callbacks keep
_OWN_FOLDER = "lightning"  # in the run's folder: where callbacks write by default


class TrainingModule(LightningModule):
    """A run for Lightning's Trainer."""

    def __init__(self, training: Training, callbacks: Mapping[str, Callback]) -> None:
        """callbacks: those of the trainer, by their names in the config."""
        super().__init__()
        self.automatic_optimization = False
        policy: Policy[TorchMachine] = training.policy
        self.model, self.machine = policy.machine.model, policy.machine
        self.run, self.callbacks, self.numbers = training, callbacks, training.steps()
        training.checkpoints.more.append(self._save_callbacks)

    def configure_optimizers(self) -> Any:
        return self.machine.optimizers

    def train_dataloader(self) -> Any:
        return _Numbers(self.numbers, self.run.remaining)

    def val_dataloader(self) -> Any:
        return range(1)

    def setup(self, stage: str) -> None:
        """Give the callbacks the state that they had in the checkpoint."""
        self._handler = signal.getsignal(signal.SIGTERM)
        folder = self.run.checkpoints.restored
        if folder is None or not (file := folder / _STATES).exists():
            return
        try:
            states = torch.load(file, weights_only=True)
        except (UnpicklingError, RuntimeError) as error:
            raise FolderError(f"{file}: {error}") from None
        for name, callback in self.callbacks.items():
            if name in states:
                callback.load_state_dict(states[name])

    def _save_callbacks(self, folder: Path) -> None:
        states = {name: callback.state_dict() for name, callback in self.callbacks.items()}
        if any(states.values()):
            torch.save(states, folder / _STATES)

    def on_train_start(self) -> None:
        signal.signal(signal.SIGTERM, self._handler)  # Lightning's would stop without saving
        optimizers: Any = self.optimizers()
        # They call the hooks of the callbacks.
        self.machine.apply_gradients = [
            optimizer.step
            for optimizer in (optimizers if isinstance(optimizers, list) else [optimizers])
        ]
        self.machine.backward = self.manual_backward

    def training_step(self, batch: int, batch_idx: int) -> None:
        metrics = self.run.learn(batch)
        _set_global_step(self.trainer, self.run.step)  # it has counted steps of optimisers
        self._log_all(metrics)

    def on_train_batch_end(self, outputs: Any, batch: int, batch_idx: int) -> None:
        if self.trainer.should_stop:
            self.run.stop()
        self.trainer.val_check_batch = 1 if self.run.validation_is_due() else math.inf

    def validation_step(self, batch: int, batch_idx: int) -> None:
        self._log_all(self.run.validate())

    def _log_all(self, metrics: Mapping[str, float]) -> None:
        if not self.callbacks:
            return  # nobody would read them, and a step may be short
        for name, value in metrics.items():
            wins = name.endswith("/win_rate")
            self.log(name, value, prog_bar=wins, logger=False, batch_size=1)


class _Numbers:
    """Numbers of steps in place of batches.

    Their count keeps Lightning from asking for a number before the last one is learnt.
    """

    def __init__(self, numbers: Iterator[int], count: int) -> None:
        self._numbers, self._count = numbers, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return self._numbers


class _InPlace(SingleDeviceStrategy):
    """Leaves the model and the optimisers where they are, after the last step, too."""

    def setup(self, trainer: Trainer) -> None:
        self.setup_optimizers(trainer)

    def teardown(self) -> None:
        pass


class _Rows(Logger):
    """Puts what callbacks log into the row of the step, in metrics.jsonl and all loggers."""

    def __init__(self, training: Training, loggers: list[Any]) -> None:
        super().__init__()
        self._training, self._loggers = training, loggers

    @property
    def name(self) -> str:
        return _OWN_FOLDER

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self._training.folder.path)

    @property
    def experiment(self) -> Any:
        """What the first logger of logger= writes to, such as TensorBoard's SummaryWriter."""
        return self._loggers[0].experiment if self._loggers else None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._training.note({k: float(v) for k, v in metrics.items() if k != "epoch"})

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """The run's own config.yaml has them."""


def build_callbacks(nodes: Mapping[str, Any]) -> dict[str, Callback]:
    """The callbacks of callbacks=. Raises ConfigError."""
    return {
        name: instantiate_foreign(f"callbacks.{name}", node, Callback, "lightning.pytorch.")
        for name, node in nodes.items()
    }


def build_trainer(training: Training, callbacks: Mapping[str, Callback], loggers: Any) -> Trainer:
    """The Trainer of a run. It is silent, and has only these callbacks."""
    for library in ("pytorch", "fabric"):  # what devices there are, and tips
        logging.getLogger(f"lightning.{library}.utilities.rank_zero").setLevel(logging.WARNING)
    rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]
    device: torch.device = training.policy.machine.device

    def has(kind: type) -> bool:
        return any(isinstance(callback, kind) for callback in callbacks.values())

    return Trainer(
        accelerator=device.type,
        devices=[device.index or 0] if device.type == "cuda" else 1,
        strategy=_InPlace(device),
        plugins=[LightningEnvironment()],  # a job manager's variables start nothing here
        max_epochs=1,
        val_check_interval=training.setup.trainer.validate_every,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        use_distributed_sampler=False,
        logger=_Rows(training, loggers),
        callbacks=[*callbacks.values()],
        enable_checkpointing=has(Checkpoint),
        enable_progress_bar=has(ProgressBar),
        enable_model_summary=has(ModelSummary),
        default_root_dir=training.folder.path / _OWN_FOLDER,
    )


def fit(trainer: Trainer, module: TrainingModule) -> None:
    """Do all steps that are left, unless a callback stops the run. Raises CallbackFailed."""
    if module.run.remaining:
        _set_global_step(trainer, module.run.step)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module=r"lightning\.")
                trainer.fit(module)
        except Exception as error:
            if name := _find_culprit(error, module.callbacks):
                kind = type(error).__name__
                raise CallbackFailed(f"callbacks.{name} raised {kind}: {error}") from error
            raise
    if trainer.should_stop:
        module.run.stop()
    next(module.numbers, None)  # completes the last step


def _set_global_step(trainer: Trainer, step: int) -> None:
    trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total.completed = step


def _find_culprit(error: Exception, callbacks: Mapping[str, Callback]) -> str | None:
    """The name of the callback in which an error was raised."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("callback")  # of Lightning's function that calls the hooks
        for name, callback in callbacks.items():
            if owner is callback:
                return name
    return None
