"""The torch backend: a LightningModule under Lightning's Trainer.

Lightning brings devices, loggers and callbacks. The training step is the one that
all backends share, and checkpoints are the project's own, written completely or not at all. With
several processes, each has a Trainer for one device. Lightning's own strategies would sum gradients
per micro-batch, whose number differs between processes. The policy sums them once per update.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from torch.utils.data import DataLoader, Dataset

from wordle_rl.backends.loggers import LightningReporter, build_loggers, log_outcome
from wordle_rl.backends.step_bar import show_steps
from wordle_rl.backends.torch.load import load_layer_shape, load_model
from wordle_rl.backends.torch.memory_checks import limit_product_caches, measure_memory, plan_run
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.backends.torch.processes import TorchProcesses, connect_store, start_processes
from wordle_rl.backends.torch.timing import choose_computing
from wordle_rl.policy.computing import Computing
from wordle_rl.policy.memory_plan import DEFAULT_MICRO_BATCH, Place
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import LightningSettings, ModelSettings
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.interrupts import Interrupts, ignore_signals
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.loop import Training, run_training
from wordle_rl.training.progress import StepLines, announce


class StepNumbers(Dataset[int]):
    """The numbers of the remaining steps. It has a length, so Lightning does not prefetch."""

    def __init__(self, first: int, end: int) -> None:
        self._steps = range(first, end)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> int:
        return self._steps[index]


class TrainingModule(LightningModule):
    """Passes each step number to the shared training step. Optimisation is manual."""

    def __init__(
        self, policy: TorchPolicy, training: Training, lines: StepLines | None = None
    ) -> None:
        """lines: shows each step on the terminal."""
        super().__init__()
        self.automatic_optimization = False
        self.model = policy.model
        self.policy, self.first_step = policy, training.first_step
        self._training, self._lines = training, lines

    def configure_optimizers(self) -> Any:
        return self.policy.optimizers

    def on_fit_start(self) -> None:
        self.policy.backward = self.manual_backward
        wrapped: Any = self.optimizers()
        wrapped = wrapped if isinstance(wrapped, list) else [wrapped]
        self.policy.apply_gradients = [optimizer.step for optimizer in wrapped]

    def training_step(self, batch: int, batch_idx: int) -> None:
        metrics = self._training.run_step(int(batch))
        if self._lines is not None:
            self._lines.step(int(batch) + 1, metrics)


class OwnSignals(Callback):
    """Restores our signal handlers. Lightning's would end the process with exit code 0."""

    def __init__(self, install: Callable[[], None]) -> None:
        self._install = install

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._install()


def build_policy(
    model: ModelSettings,
    backend: LightningSettings,
    *,
    temperature: float,
    optim: Optim,
    rank: int = 0,
    computing: Computing | None = None,
) -> TorchPolicy:
    """The policy on the device that the settings name. rank: number of this process.

    computing: how to compute there, None to find out.
    """
    device = _choose_device(backend, rank)
    computing = computing or _choose_computing(model, backend, device)
    tokens = backend.micro_batch_tokens
    network, tokenizer = load_model(model, precision=computing.precision, device=device)
    policy = TorchPolicy(
        network,
        tokenizer,
        temperature=temperature,
        optim=optim,
        precision=computing.precision,
        micro_batch_tokens=DEFAULT_MICRO_BATCH if tokens == "auto" else tokens,
        max_context=model.max_context,
        gradient_checkpointing=backend.gradient_checkpointing,
    )
    policy.computing = computing.with_notes(tokenizer.notes)
    return policy


def _choose_computing(model: ModelSettings, backend: LightningSettings, device: str) -> Computing:
    return choose_computing(backend, torch.device(device), lambda: load_layer_shape(model))


def _measure_device(device: str, processes: int) -> tuple[Place, float]:
    """The kind of a device, and the bytes of memory that this process can have of it."""
    if device.startswith("cuda"):
        return "cuda", torch.cuda.mem_get_info(device)[0]
    return ("mps" if device == "mps" else "cpu"), measure_memory() / processes


def _choose_device(backend: LightningSettings, rank: int) -> str:
    accelerator = backend.accelerator
    have = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        accelerator = next((name for name, there in have.items() if there), "cpu")
    if not have.get(accelerator, True):
        there = ", ".join(["auto", "cpu", *(name for name, ok in have.items() if ok)])
        raise ValueError(f"backend.accelerator={accelerator} is not on this machine; use {there}")
    most = {"cuda": torch.cuda.device_count(), "mps": 1}.get(accelerator, backend.devices)
    if backend.devices > most:
        raise ValueError(
            f"backend.devices must be 1..{most} with backend.accelerator={accelerator} on this "
            f"machine, not {backend.devices}"
        )
    return f"cuda:{rank}" if accelerator == "cuda" else accelerator


def train(
    setup: Experiment, folder: RunFolder, *, resume: bool, interrupts: Interrupts
) -> dict[str, Any]:
    """Run the experiment in its folder. Returns the summary.

    Raises Interrupted after a signal, once everything that a resumed run needs is saved.
    """
    _silence_lightning()
    with user_errors():
        policy, setup = _build_policy(setup, rank=0)
        loggers = build_loggers(setup.logger, folder.path)
    with ExitStack() as stack:
        if setup.backend.devices > 1:
            config = share_choices(setup, policy)
            task = {"config": config, "folder": str(folder.path), "resume": resume}
            others = start_processes(
                setup.backend.devices, policy.device, task, interrupts, folder.set_failed
            )
            policy.processes = stack.enter_context(others)
        with user_errors():
            training = Training(policy, setup, folder, LightningReporter(loggers), interrupts.check)

        def fit() -> None:
            with show_steps(training.first_step, setup.trainer.steps) as lines:
                module = TrainingModule(policy, training, lines)
                _run_steps(module, setup, loggers, OwnSignals(interrupts.install))

        summary = run_training(training, fit, resume=resume, interrupts=interrupts)
    log_outcome(loggers, folder, setup.config, summary)
    return summary


def share_choices(setup: Experiment, policy: TorchPolicy) -> dict[str, Any]:
    """The config for other processes, with what the first process chose.

    All processes have one precision. Each finds its own number of threads.
    """
    backend = {
        **setup.config["backend"],
        "precision": policy.computing.precision,
        "micro_batch_tokens": setup.backend.micro_batch_tokens,
    }
    rollout = setup.config["rollout"] | {"games_at_once": setup.recipe.rollout.games_at_once}
    return {**setup.config, "backend": backend, "rollout": rollout}


def follow(
    setup: Experiment, folder: RunFolder, *, resume: bool, rank: int, size: int, port: int
) -> None:
    """Run the experiment in a process other than the first, which writes no files.

    port: of the store where the processes find each other.
    """
    _silence_lightning()
    policy, _ = _build_policy(setup, rank=rank)
    store = connect_store(port, size)
    policy.processes = TorchProcesses(rank, size, store, policy.device)
    training = Training(policy, setup, folder, LightningReporter([]))
    if not (resume and training.restore()):
        training.begin()
    _run_steps(TrainingModule(policy, training), setup, [], OwnSignals(ignore_signals))
    training.finish()


def _build_policy(setup: Experiment, *, rank: int) -> tuple[TorchPolicy, Experiment]:
    """The policy, and the experiment with numbers in place of auto."""
    assert isinstance(setup.backend, LightningSettings)
    with announce(f"loading {setup.model.path}"):
        device = _choose_device(setup.backend, rank)
        limit_product_caches(setup, device)
        computing = _choose_computing(setup.model, setup.backend, device)
        if rank == 0:  # the other processes get its choices
            place, memory = _measure_device(device, setup.backend.devices)
            setup = plan_run(setup, place, computing.precision, memory)
        assert isinstance(setup.backend, LightningSettings)
        policy = build_policy(
            setup.model, setup.backend,
            temperature=setup.recipe.sampling.scoring_temperature, optim=setup.optim, rank=rank,
            computing=computing,
        )  # fmt: skip
        return policy, setup


def _run_steps(
    module: TrainingModule, setup: Experiment, loggers: list[Logger], signals: OwnSignals
) -> None:
    """Run the remaining steps under a Trainer."""
    steps = StepNumbers(module.first_step, setup.trainer.steps)
    if not len(steps):
        return
    device = module.policy.device
    trainer = Trainer(
        accelerator=device.type,
        devices=[device.index] if device.type == "cuda" else 1,
        # By default Lightning takes the tasks of SLURM, torchrun or LSF for processes that train
        # together, and handles SLURM's requeue signal. Here each task is a run of its own.
        plugins=[LightningEnvironment()],
        max_epochs=1,
        logger=loggers,
        callbacks=[signals],
        enable_progress_bar=False,
        enable_checkpointing=False,  # the Training writes checkpoints
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    trainer.fit(module, DataLoader(steps, batch_size=None))


def _silence_lightning() -> None:
    """Hide its advice about workers and cores, which does not fit a loader of step numbers."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # The model is in eval mode on purpose: dropout is always off.
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
