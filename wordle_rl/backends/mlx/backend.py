"""The MLX backend: a short loop around the training step that all backends share.

One process on one device: the GPU of Apple silicon, or the CPU on Linux.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx

from wordle_rl.backends.loggers import LightningReporter, build_loggers, finish_loggers
from wordle_rl.backends.memory import (
    DEFAULT_MICRO_BATCH,
    measure_memory,
    settle_memory,
)
from wordle_rl.backends.mlx.load import load_model
from wordle_rl.backends.mlx.policy import MlxPolicy
from wordle_rl.backends.sizes import find_sizes
from wordle_rl.policy.computing import (
    Computing,
    Precision,
    choose_precision,
    time_in_turns,
    timed_sizes,
)
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import MlxSettings, ModelSettings
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.folder import RunFolder, label_run
from wordle_rl.runs.interrupts import Interrupts
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.loop import Training, run_training
from wordle_rl.training.progress import announce, show_steps


def build_policy(
    model: ModelSettings, backend: MlxSettings, *, temperature: float, optim: Optim
) -> MlxPolicy:
    """The policy on MLX's default device."""
    _limit_memory(backend)
    if _on_cpu():
        mx.disable_compile()  # mlx-lm's fused functions, for which a CPU needs a C++ compiler
    computing = _choose_computing(backend.precision, model)
    loaded = load_model(model, precision=computing.precision)
    tokens = backend.micro_batch_tokens
    policy = MlxPolicy(
        loaded,
        temperature=temperature,
        optim=optim,
        precision=computing.precision,
        micro_batch_tokens=DEFAULT_MICRO_BATCH if tokens == "auto" else tokens,
        max_context=model.max_context,
        gradient_checkpointing=backend.gradient_checkpointing,
    )
    policy.computing = computing.with_notes(loaded.tokenizer.notes)
    return policy


def _choose_computing(precision: Precision | Literal["auto"], model: ModelSettings) -> Computing:
    """The given precision, or the faster one for auto."""
    if precision != "auto":
        return Computing(precision=precision)
    if not _on_cpu():
        return Computing(precision="bf16", reasons=("bf16: the GPU computes in it",))
    works = {
        name: _build_work(dtype, model)
        for name, dtype in (("fp32", mx.float32), ("bf16", mx.bfloat16))
    }
    chosen, reason = choose_precision(time_in_turns(works))
    return Computing(precision=chosen, reasons=(reason,))


def _build_work(dtype: mx.Dtype, model: ModelSettings) -> Callable[[], None]:
    """Work that multiplies hidden states by the two matrices of a feed-forward layer."""
    sizes, _ = find_sizes(model)
    rows, width, inner = timed_sizes(sizes.hidden, sizes.inner)
    states, up, down = (
        mx.random.normal(size, key=mx.random.key(0)).astype(dtype)
        for size in ((rows, width), (width, inner), (inner, width))
    )
    mx.eval(states, up, down)
    return lambda: mx.eval(states @ up @ down)


def _on_cpu() -> bool:
    return mx.default_device() == mx.Device(mx.cpu)


def _limit_memory(backend: MlxSettings) -> None:
    mx.set_cache_limit(int(backend.cache_gb * 2**30))
    if mx.metal.is_available():
        # Keep the model in memory, up to the limit that the system recommends.
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))


def _plan_memory(setup: Experiment) -> Experiment:
    """The experiment with numbers in place of auto, once its memory is planned."""
    precision = setup.backend.precision
    if precision == "auto":  # on a CPU it is chosen after loading
        precision = "fp32" if _on_cpu() else "bf16"
    return settle_memory(setup, "mlx", precision, measure_memory())


def train(
    setup: Experiment, folder: RunFolder, *, resume: bool, interrupts: Interrupts, work: object
) -> dict[str, Any]:
    """Run the experiment in its folder. Returns the summary.

    work: not used, because there is one process. Raises Interrupted after a signal, once everything
    that a resumed run needs is saved.
    """
    with user_errors(), announce(f"loading {setup.model.path}"):
        setup = _plan_memory(setup)
        assert isinstance(setup.backend, MlxSettings)
        policy = build_policy(
            setup.model, setup.backend,
            temperature=setup.recipe.sampling.scoring_temperature, optim=setup.optim,
        )  # fmt: skip
        loggers = build_loggers(setup.logger, Path(folder.path), label_run(folder.manifest()))
        training = Training(policy, setup, folder, LightningReporter(loggers), interrupts.check)

    def fit() -> None:
        steps = range(training.first_step, setup.trainer.steps)
        with show_steps(training.first_step, setup.trainer.steps) as lines:
            for step in steps:
                lines.step(step + 1, training.run_step(step))

    summary = run_training(training, fit, resume=resume, interrupts=interrupts)
    if (peak := mx.get_peak_memory()) and mx.metal.is_available():  # the CPU build counts little
        print(f"peak memory of MLX: {peak / 1e9:.1f} GB", flush=True)
    finish_loggers(loggers, setup.config)
    return summary
