"""Where and how torch computes: the device, the precision and the number of CPU threads.

Precision and threads are chosen by timing matrix products as wide as the model's layers. Nothing is
timed on accelerators: they use bf16 where the device supports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from wordle_rl.backends.memory import Place, measure_memory
from wordle_rl.backends.sizes import find_sizes, is_large
from wordle_rl.policy.computing import (
    Computing,
    Precision,
    choose_precision,
    choose_threads,
    time_in_turns,
    timed_sizes,
)
from wordle_rl.policy.settings import LightningSettings, ModelSettings

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_LAYERS = 4  # of the timed loop


def measure_device(device: str, processes: int) -> tuple[Place, float]:
    """The kind of a device, and the bytes of memory that this process can have of it."""
    if device.startswith("cuda"):
        return "cuda", torch.cuda.mem_get_info(device)[0]
    return ("mps" if device == "mps" else "cpu"), measure_memory() / processes


def choose_device(backend: LightningSettings, place: int) -> str:
    """The device of a process. place: its number among the processes of this machine.

    Raises ValueError for a device that this machine lacks.
    """
    have = {"cpu": backend.processes_here}  # devices of each kind
    if torch.backends.mps.is_available():
        have = {"mps": 1, **have}
    if torch.cuda.is_available():
        have = {"cuda": torch.cuda.device_count(), **have}
    accelerator = next(iter(have)) if backend.accelerator == "auto" else backend.accelerator
    if accelerator not in have:
        there = ", ".join(["auto", *reversed(have)])
        raise ValueError(f"backend.accelerator={accelerator} is not on this machine; use {there}")
    if backend.processes_here > have[accelerator]:
        number = "backend.devices" if backend.devices > 1 else "torchrun's --nproc-per-node"
        raise ValueError(
            f"{number} must be 1..{have[accelerator]} with backend.accelerator={accelerator} on "
            f"this machine, not {backend.processes_here}"
        )
    return f"cuda:{place}" if accelerator == "cuda" else accelerator


def limit_product_caches(model: ModelSettings, device: str) -> None:
    """Let oneDNN and torch keep few prepared matrix products for a pretrained model on the CPU.

    Call this before the first operation. A product is prepared for one size of matrices, with
    memory of its own, and sizes differ from batch to batch. Each cache keeps 1,024 of them, which
    takes gigabytes with SmolLM2. Small models are faster with that default.
    """
    if device == "cpu" and is_large(model):
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
        os.environ.setdefault("LRU_CACHE_CAPACITY", "32")  # torch's own, above oneDNN's


def choose_computing(
    settings: LightningSettings, device: torch.device, model: ModelSettings
) -> Computing:
    """Take precision and threads from the settings, or time the choices where a setting is auto.

    Sets the number of threads. Raises ConfigError in one line when the model has no config.
    """
    on_cpu, reasons = device.type == "cpu", []
    precision, threads = settings.precision, settings.threads
    if precision == "auto":
        if on_cpu:
            torch.set_num_threads(1)  # other programs disturb one thread the least
            works = {name: _build_work(DTYPES[name], model) for name in ("fp32", "bf16")}
            precision, reason = choose_precision(time_in_turns(works))
        else:
            precision, reason = _ask_device(device)
        reasons.append(reason)
    if threads == "auto":
        threads = count_cpu_threads(settings.processes_here)
        if on_cpu and threads > 1:
            work = _build_work(DTYPES[precision], model)
            works = {count: partial(_work_on, count, work) for count in (1, threads)}
            threads, reason = choose_threads(time_in_turns(works))
            reasons += [reason] if reason else []
    torch.set_num_threads(threads)
    return Computing(precision=precision, reasons=tuple(reasons), threads=threads)


def count_cpu_threads(processes: int = 1) -> int:
    """Threads for one of several processes: its share of OMP_NUM_THREADS, or of the cores.

    Where torchrun started the processes, OMP_NUM_THREADS is for each, but torchrun's own 1 is none
    of the user's choices.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    if asked.isdecimal() and int(asked) and not (launched and processes > 1 and asked == "1"):
        cores = int(asked) * (processes if launched else 1)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(cores // processes, 1)


def _ask_device(device: torch.device) -> tuple[Precision, str]:
    """Whether an accelerator computes in bf16."""
    try:
        able = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
        ones = torch.ones(8, 8, dtype=torch.bfloat16, device=device)
        if able and bool((ones @ ones == 8).all()):
            return "bf16", f"bf16: {device.type} computes in it"
    except (RuntimeError, TypeError):  # MPS before macOS 14
        pass
    return "fp32", f"fp32: this {device.type} device does not compute in bf16"


def _work_on(threads: int, work: Callable[[], object]) -> None:
    torch.set_num_threads(threads)
    work()


def _build_work(dtype: torch.dtype, model: ModelSettings) -> Callable[[], object]:
    """Feed-forward layers like the model's, after each operation of which threads must wait."""
    sizes, _ = find_sizes(model)
    rows, width, inner = timed_sizes(sizes.hidden, sizes.inner)
    generator = torch.Generator().manual_seed(0)  # leaves the global generator alone
    states, up, down = (
        torch.randn(size, generator=generator).to(dtype)
        for size in ((rows, width), (inner, width), (width, inner))
    )

    @torch.inference_mode()
    def work() -> None:
        for _ in range(_LAYERS):
            nn.functional.linear(nn.functional.silu(nn.functional.linear(states, up)), down)

    return work
