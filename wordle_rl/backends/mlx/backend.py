"""The MLX backend: a short loop around the training step that all backends share.

One process on one device: the GPU of Apple silicon, or the CPU on Linux.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm import utils as mlx_lm_utils

from wordle_rl.backends.loading import explain_load_errors
from wordle_rl.backends.loggers import LoggersReporter, build_loggers, finish_loggers
from wordle_rl.backends.memory import measure_memory, settle_memory
from wordle_rl.backends.mlx.load import assemble, load_model
from wordle_rl.backends.mlx.machine import MlxMachine
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.settings import BackendSettings, MlxSettings, ModelSettings
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.interrupts import Interrupts
from wordle_rl.runs.progress import announce
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.loop import Training, run_training


def build_policy(
    model: ModelSettings, backend: MlxSettings, *, temperature: float, optim: Optim
) -> Policy:
    """The policy on MLX's default device."""
    mx.set_cache_limit(int(backend.cache_gb * 2**30))
    if mx.metal.is_available():
        # Keep the model in memory, up to the limit that the system recommends.
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
    else:
        mx.disable_compile()  # mlx-lm's fused functions, for which a CPU needs a C++ compiler
    precision = _choose_precision(backend)
    bundle = load_model(model, precision=precision)
    machine = MlxMachine(
        bundle,
        optim=optim,
        precision=precision,
        gradient_checkpointing=backend.gradient_checkpointing,
    )
    policy = Policy(
        machine,
        temperature=temperature,
        micro_batch_tokens=backend.micro_batch_tokens,
        max_context=model.max_context,
    )
    policy.computing = Computing(precision=precision).with_notes(bundle.tokenizer.notes)
    return policy


def open_plain(folder: Path, *, max_context: int) -> Policy:
    """A policy on what mlx-lm makes of a folder by itself, in float32."""
    with explain_load_errors(str(folder), on_disk=True, library="mlx-lm"):
        model, config = mlx_lm_utils.load_model(folder)
        model.set_dtype(mx.float32)
        bundle = assemble(model, config, folder, tokenizer=folder)
    return Policy(MlxMachine(bundle, optim=Optim()), max_context=max_context)


def answer_plainly(folder: Path, prompts: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """Greedy answers of a folder to prompts, by mlx-lm alone, in float32.

    most: tokens of an answer.
    """
    from mlx_lm.generate import generate_step

    parts: Any = mlx_lm_utils.load(str(folder))
    model, tokenizer = parts[:2]
    model.set_dtype(mx.float32)
    answers = []
    for prompt in prompts:
        answer: list[int] = []
        for token, _ in generate_step(mx.array([*prompt]), model, max_tokens=most):
            answer.append(int(token))
            if answer[-1] in tokenizer.eos_token_ids:
                break
        answers.append(answer)
    return answers


def _choose_precision(backend: BackendSettings) -> Precision:
    """For auto bf16 on a GPU, and fp32 on a CPU, whose bf16 is slower in most cases."""
    if backend.precision != "auto":
        return backend.precision
    return "bf16" if mx.metal.is_available() else "fp32"


def train(
    setup: Experiment,
    folder: RunFolder,
    *,
    resume: bool,
    interrupts: Interrupts,
    work: object,
    page: Callable[[], None],
) -> dict[str, Any]:
    """Run the experiment in its folder. Returns the summary.

    work: not used, because there is one process. page: writes report.html. Raises Interrupted
    after a signal, once everything that a resumed run needs is saved.
    """
    with user_errors(), announce(f"loading {setup.model.path}"):
        precision = _choose_precision(setup.backend)
        setup = settle_memory(setup, "mlx", precision, measure_memory())
        assert isinstance(setup.backend, MlxSettings)
        build = partial(
            build_policy,
            backend=setup.backend,
            temperature=setup.recipe.scoring_temperature,
            optim=setup.optim,
        )
        policy = build(setup.model)
        if setup.reference is not None:
            policy.set_reference(build(setup.reference), setup.reference.name)
        loggers = build_loggers(setup.logger, folder)
        reporter = LoggersReporter(loggers, setup.config)
        training = Training(policy, setup, folder, reporter, interrupts.check, page)

    summary = run_training(training, training.run_steps, resume=resume, interrupts=interrupts)
    if mx.metal.is_available():
        print(f"peak memory of MLX: {mx.get_peak_memory() / 1e9:.1f} GB", flush=True)
    finish_loggers(loggers, setup.config)
    return summary
