"""The torch backend: Lightning's Trainer goes through the steps that all backends share.

Checkpoints are the project's own, written completely or not at all. With several processes, the
policy sums gradients once per update. (Lightning's strategies would sum them per micro-batch, whose
number differs between processes.) Only a training's first process imports Lightning.
"""

import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wordle_rl.backends.loggers import LoggersReporter, build_loggers, finish_loggers
from wordle_rl.backends.memory import settle_memory
from wordle_rl.backends.torch.devices import (
    choose_computing,
    choose_device,
    measure_device,
    prepare_memory,
)
from wordle_rl.backends.torch.load import load_model, save_adapter
from wordle_rl.backends.torch.machine import TorchMachine
from wordle_rl.backends.torch.processes import (
    Follow,
    ProcessLost,
    TorchProcesses,
    join_processes,
    start_processes,
)
from wordle_rl.policy.computing import Computing
from wordle_rl.policy.models import MAIN
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.settings import LightningSettings, ModelSettings
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.interrupts import Interrupts
from wordle_rl.runs.processes import ALONE, Processes, read_launch
from wordle_rl.runs.progress import announce
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.failures import TrainingFailed
from wordle_rl.training.loop import Training, run_training

# Overrules what a base says about drawing.
NEUTRAL = {"repetition_penalty": 1.0, "top_k": 0, "top_p": 1.0}


def build_policy(
    model: ModelSettings,
    backend: LightningSettings,
    *,
    temperature: float,
    optim: Optim,
    place: int = 0,
    computing: Computing | None = None,
) -> Policy[TorchMachine]:
    """The policy on the device that the settings name. place: of the device on this machine.

    computing: how to compute there, None to find out.
    """
    device = choose_device(backend, place)
    if backend.cuda_graphs and not device.startswith("cuda"):
        raise ConfigError(f"backend.cuda_graphs=true needs backend.accelerator=cuda, not {device}")
    computing = computing or choose_computing(backend, torch.device(device))
    network, tokenizer = load_model(model, precision=computing.precision, device=device)
    machine = TorchMachine(
        network,
        tokenizer,
        optim=optim,
        precision=computing.precision,
        gradient_checkpointing=backend.gradient_checkpointing,
        cuda_graphs=backend.cuda_graphs,
    )
    policy = Policy(
        machine,
        temperature=temperature,
        micro_batch_tokens=backend.tokens_asked,
        max_context=model.max_context,
    )
    policy.computing = computing.with_notes((*tokenizer.notes, *machine.lm.notes))
    return policy


def answer_plainly(
    folder: Path,
    prompts: Sequence[Sequence[int]],
    most: int,
    *,
    base: tuple[str, str] | None,
    stops: Collection[int],
) -> list[list[int]]:
    """Greedy answers of a folder to prompts, by transformers and peft alone, in float32.

    most: tokens of an answer. base: location and revision of the model under an adapter. What its
    own file says about drawing is overruled as on the card. stops: the ids that end an answer.
    """
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    path, revision = base or (str(folder), MAIN)
    model: Any = AutoModelForCausalLM.from_pretrained(path, revision=revision, dtype=torch.float32)
    options: dict[str, Any] = {}
    if base is not None:
        model, options = PeftModel.from_pretrained(model, str(folder)), NEUTRAL
        options = options | {"eos_token_id": sorted(stops)}
    answers = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        output = model.eval().generate(**inputs, max_new_tokens=most, do_sample=False, **options)
        answers.append(output[0, len(prompt) :].tolist())
    return answers


def train(
    setup: Experiment,
    folder: RunFolder,
    *,
    resume: bool,
    interrupts: Interrupts,
    work: Follow,
    page: Callable[[], None],
) -> dict[str, Any]:
    """Run the experiment in its folder. Returns the summary.

    work: what further processes on this machine do. page: writes report.html. Raises
    Interrupted after a signal, once everything that a resumed run needs is saved, and
    TrainingFailed where a process is lost.
    """
    try:
        with ExitStack() as stack:
            return _train(setup, folder, resume, interrupts, work, page, stack)
    except ProcessLost as error:
        hint = f": continue with {folder.resume_command}" if folder.begun else ""
        raise TrainingFailed(f"{error}, so the run stops{hint}") from None


def _train(
    setup: Experiment,
    folder: RunFolder,
    resume: bool,
    interrupts: Interrupts,
    work: Follow,
    page: Callable[[], None],
    stack: ExitStack,
) -> dict[str, Any]:
    with announce("loading Lightning"):
        from wordle_rl.backends.torch.trainer import (
            TrainingModule,
            build_callbacks,
            build_trainer,
            fit,
        )
    processes: Processes = ALONE
    if launch := read_launch():
        processes = stack.enter_context(join_processes(launch))
    with user_errors():
        callbacks = build_callbacks(setup.callbacks)
        policy, setup = _build_policy(setup)
        loggers = build_loggers(setup.logger, folder)
    if setup.backend.devices > 1:
        context = start_processes(setup.backend.devices, work, interrupts)
        processes = stack.enter_context(context)
    if isinstance(processes, TorchProcesses):
        processes.gather(
            {
                "config": share_choices(setup, policy),
                "resume": resume,
                "folder": str(folder.path),
                "checkpoints": _list_checkpoints(folder),
            }
        )
        processes.use_device(policy.machine.device)
        policy.processes = processes
    with user_errors():
        stack.enter_context(_let_servers_play(policy, setup, folder.path, interrupts.check))
        reporter = LoggersReporter(loggers, setup.config)
        training = Training(policy, setup, folder, reporter, interrupts.check, page)
        trainer = build_trainer(training, callbacks, loggers)
    run_steps = partial(fit, trainer, TrainingModule(training, callbacks))
    summary = run_training(training, run_steps, resume=resume, interrupts=interrupts)
    finish_loggers(loggers, setup.config)
    return summary


def share_choices(setup: Experiment, policy: Policy) -> dict[str, Any]:
    """The config for other processes, with what the first process chose.

    All processes have one precision. Each finds its own number of threads if that is auto.
    """
    choice: Any = setup.backend
    backend = setup.config["backend"] | asdict(choice) | {"precision": policy.computing.precision}
    rollout = setup.config["rollout"] | {"games_at_once": setup.recipe.rollout.games_at_once}
    model = setup.config["model"] | {"games_at_once": setup.model.games_at_once}
    return {**setup.config, "backend": backend, "rollout": rollout, "model": model}


def follow(build: Callable[[dict[str, Any]], Experiment], processes: TorchProcesses) -> None:
    """Run the experiment of the first process in another one, which writes no files.

    build: makes the experiment from its config.
    """
    task: dict[str, Any] = processes.gather({})[0]
    folder = RunFolder(Path(task["folder"]))
    if not folder.path.is_dir() or _list_checkpoints(folder) != task["checkpoints"]:
        raise ConfigError(
            f"the run folder {folder.path} is another one on {socket.gethostname()}, or missing: "
            "let output_dir= name a folder that all machines share under the same path"
        )
    policy, setup = _build_policy(build(task["config"]))
    processes.use_device(policy.machine.device)
    policy.processes = processes
    training = Training(policy, setup, folder, LoggersReporter([]))
    if not (task["resume"] and training.restore()):
        training.begin()
    training.run_steps()
    training.finish()


def _list_checkpoints(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.checkpoints.glob("step_*"))


def _build_policy(setup: Experiment) -> tuple[Policy[TorchMachine], Experiment]:
    """The policy of this process, and the experiment with numbers in place of auto."""
    launch, backend = read_launch(), setup.backend
    assert isinstance(backend, LightningSettings)
    with announce(f"loading {setup.model.path}"):
        index = 0 if launch is None else launch.local_rank
        device = choose_device(backend, index)
        prepare_memory(setup.model, device)
        computing = choose_computing(backend, torch.device(device))
        if launch is None or launch.rank == 0:  # the other processes get its choices
            kind, memory = measure_device(device, backend.processes_here)
            setup = settle_memory(setup, kind, computing.precision, memory)
        assert isinstance(setup.backend, LightningSettings)
        build = partial(
            build_policy,
            backend=setup.backend,
            temperature=setup.recipe.scoring_temperature,
            optim=setup.optim,
            place=index,
            computing=computing,
        )
        policy = build(setup.model)
        if setup.reference is not None:
            policy.set_reference(build(setup.reference), setup.reference.name)
        return policy, setup


def _let_servers_play(
    policy: Policy[TorchMachine], setup: Experiment, run: Path, check: Callable[[], None]
) -> AbstractContextManager[None]:
    """Let vLLM servers play for the policy during the block, with rollout.engine=vllm.

    run: the run's folder. check: raises to stop the run while no server answers.
    """
    if setup.servers is None:
        return nullcontext()
    from wordle_rl.backends.vllm import serve

    network: Any = policy.machine.model
    save, vocabulary = partial(save_adapter, network), len(network.get_input_embeddings().weight)
    return serve(policy, setup, run, check, save=save, vocabulary=vocabulary)
