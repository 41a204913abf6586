"""The torch backend: a LightningModule under Lightning's Trainer.

Lightning brings devices, loggers, callbacks and the progress bar; the step itself is shared with
every other backend, and checkpoints are the project's own, written whole or not at all.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from torch.utils.data import DataLoader, Dataset

from wordle_rl.backends.models import load_model
from wordle_rl.backends.torch_policy import TorchPolicy
from wordle_rl.build import Experiment
from wordle_rl.cli import user_errors
from wordle_rl.json_files import plain
from wordle_rl.optim import Optim
from wordle_rl.run_folder import RunFolder
from wordle_rl.settings import LightningSettings, LoggerSettings, ModelSettings
from wordle_rl.training import Training

_SHOWN = {  # on the progress bar: name there -> metric
    "loss": "loss",
    "reward": "reward/mean",
    "win%": "train/win_rate",
    "val%": "val/win_rate",
    "no_spread%": "groups/zero_spread",
    "games/s": "games_per_second",
}


class Steps(Dataset[int]):
    """The numbers of the steps to come; with a length, so that Lightning fetches none ahead."""

    def __init__(self, first: int, end: int) -> None:
        self._steps = range(first, end)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> int:
        return self._steps[index]


class GrpoModule(LightningModule):
    """Hands each step number to the shared training step; optimisation is manual."""

    def __init__(self, policy: TorchPolicy, training: Training) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = policy.model
        self._policy = policy
        self._training = training
        self._shown: dict[str, float] = {}

    def configure_optimizers(self) -> Any:
        return self._policy.optimizers

    def on_fit_start(self) -> None:
        self._policy.backward = self.manual_backward
        wrapped: Any = self.optimizers()
        wrapped = wrapped if isinstance(wrapped, list) else [wrapped]
        self._policy.apply_gradients = [optimizer.step for optimizer in wrapped]

    def training_step(self, batch: int, batch_idx: int) -> None:
        metrics = self._training.run_step(int(batch))
        for name, metric in _SHOWN.items():
            if metric in metrics:
                scale = 100.0 if name.endswith("%") else 1.0
                self._shown[name] = metrics[metric] * scale
        self.log_dict(self._shown, prog_bar=True, logger=False)


class PlainProgress(Callback):
    """A line per step where there is no terminal to draw a bar on."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: int, batch_idx: int
    ) -> None:
        left = trainer.num_training_batches - batch_idx - 1
        shown = " ".join(f"{k}={v:.4g}" for k, v in trainer.progress_bar_metrics.items())
        minutes = left * (time.monotonic() - self._begin) / (batch_idx + 1) / 60
        print(f"step {batch + 1} {shown} left={minutes:.1f}min", flush=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin = time.monotonic()


class ProgressBar(TQDMProgressBar):
    """Lightning's bar without the logger's version number."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        shown = super().get_metrics(trainer, pl_module)
        shown.pop("v_num", None)
        return {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in shown.items()}


class LightningReporter:
    """Passes metrics and texts on to Lightning's loggers."""

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
    loggers: list[Logger] = []
    if settings.tensorboard:
        loggers.append(TensorBoardLogger(folder, name="", version="tensorboard"))
    if settings.csv:
        loggers.append(CSVLogger(folder, name="", version="csv"))
    if settings.wandb:
        if importlib.util.find_spec("wandb") is None:
            raise ValueError("logger=wandb needs the package wandb: pip install wandb")
        loggers.append(WandbLogger(project=settings.wandb_project, save_dir=folder))
    return loggers


def build_policy(
    model: ModelSettings, backend: LightningSettings, *, temperature: float, optim: Optim
) -> TorchPolicy:
    """The policy on the device that the settings ask for."""
    torch.set_num_threads(backend.threads or os.cpu_count() or 1)
    network, tokenizer = load_model(
        model, precision=backend.precision, device=_device(backend.accelerator)
    )
    return TorchPolicy(
        network,
        tokenizer,
        temperature=temperature,
        optim=optim,
        precision=backend.precision,
        micro_batch_tokens=backend.micro_batch_tokens,
        max_context=model.max_context,
    )


def _device(accelerator: str) -> str:
    have = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        return next((name for name, there in have.items() if there), "cpu")
    if not have.get(accelerator, True):
        there = ", ".join(["auto", "cpu", *(name for name, ok in have.items() if ok)])
        raise ValueError(f"backend.accelerator={accelerator} is not on this machine; use {there}")
    return accelerator


def train(setup: Experiment, folder: RunFolder, *, resume: bool) -> dict[str, Any]:
    """Run the experiment in its folder. Returns the summary."""
    _silence_lightning()
    with user_errors():
        policy = build_policy(
            setup.model, setup.backend,
            temperature=setup.lab.sampling.temperature, optim=setup.optim,
        )  # fmt: skip
        loggers = build_loggers(setup.logger, folder.path)
        training = Training(policy, setup, folder, LightningReporter(loggers))
        resumed = resume and training.restore()
    trained, everything = policy.num_parameters
    print(f"{setup.model.name}: {everything:,} parameters, {trained:,} of them trained", flush=True)
    if not resumed:
        training.begin()
    trainer = Trainer(
        accelerator=policy.device.type,
        devices=1,
        max_epochs=1,
        logger=loggers,
        callbacks=[ProgressBar() if sys.stdout.isatty() else PlainProgress()],
        enable_progress_bar=sys.stdout.isatty(),
        enable_checkpointing=False,  # the Training writes checkpoints
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    module = GrpoModule(policy, training)
    steps = Steps(training.first_step, setup.trainer.steps)
    if len(steps):
        trainer.fit(module, DataLoader(steps, batch_size=None))
    if trainer.interrupted:
        raise KeyboardInterrupt
    summary = training.finish()
    _log_hyperparameters(loggers, setup, summary)
    return summary


def _log_hyperparameters(loggers: list[Logger], setup: Experiment, summary: dict) -> None:
    """Settings and outcome, for TensorBoard's table of runs."""
    outcome = {f"final/{k}": v for k, v in summary.items() if k in ("win_rate", "val_win_rate")}
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(plain(setup.config), outcome)
        else:
            logger.log_hyperparams(plain(setup.config))
        logger.finalize("success")


def _silence_lightning() -> None:
    """Its advice about workers and cores does not fit a loader of step numbers."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # All passes are scoring passes, so the model is in eval mode on purpose.
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
