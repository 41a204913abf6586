"""Where and how torch computes: the device, the precision and the number of CPU threads.

A device computes in bf16 if it has units for it. Without them a CPU takes several times as long in
bf16, with them a half to a seventh of the time.
"""

import ctypes
import os

import psutil
import torch

from wordle_rl.backends.memory import DeviceKind, measure_memory
from wordle_rl.backends.sizes import is_large
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.settings import LightningSettings, ModelSettings

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # names of malloc.h
_LOOK = 0.2  # seconds in which other programs are looked at


def measure_device(device: str, processes: int) -> tuple[DeviceKind, float]:
    """The kind of a device, and the bytes of memory that this process can have of it."""
    if device.startswith("cuda"):
        return "cuda", torch.cuda.mem_get_info(device)[0]
    return ("mps" if device == "mps" else "cpu"), measure_memory() / processes


def choose_device(backend: LightningSettings, index: int) -> str:
    """The device of a process. index: its number among the processes of this machine.

    Raises ValueError for a device that this machine lacks.
    """
    counts = {"cpu": backend.processes_here}  # devices of each kind
    if torch.backends.mps.is_available():
        counts = {"mps": 1, **counts}
    if torch.cuda.is_available():
        counts = {"cuda": torch.cuda.device_count(), **counts}
    accelerator = next(iter(counts)) if backend.accelerator == "auto" else backend.accelerator
    if accelerator not in counts:
        options = ", ".join(["auto", *reversed(counts)])
        raise ValueError(f"backend.accelerator={accelerator} is not on this machine; use {options}")
    if backend.processes_here > counts[accelerator]:
        number = "backend.devices" if backend.devices > 1 else "torchrun's --nproc-per-node"
        raise ValueError(
            f"{number} must be 1..{counts[accelerator]} with backend.accelerator={accelerator} on "
            f"this machine, not {backend.processes_here}"
        )
    return f"cuda:{index}" if accelerator == "cuda" else accelerator


def prepare_memory(model: ModelSettings, device: str) -> None:
    """Let a pretrained model on the CPU keep what it frees, and few prepared matrix products.

    Call this before the first operation. Layers take and free gigabytes in each step, and to get
    them from the system, page by page, takes as long as to fill them. A product is prepared for one
    size of matrices, with memory of its own, and sizes differ from batch to batch. Both caches keep
    1,024 of them, which takes gigabytes with SmolLM2. Small models are faster with that default.
    """
    if device == "cpu" and is_large(model):
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
        os.environ.setdefault("LRU_CACHE_CAPACITY", "32")  # torch's own, above oneDNN's
        if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # of GNU's C library alone
            mallopt(_M_MMAP_THRESHOLD, 2**31 - 1)
            mallopt(_M_TRIM_THRESHOLD, -1)


def choose_computing(settings: LightningSettings, device: torch.device) -> Computing:
    """Take precision and threads from the settings, or choose them where a setting is auto.

    Sets the number of threads, and turns cuDNN's attention off. It takes 2 ms (on an H200) to
    prepare each new shape, and most shapes here are new. Source: meta-pytorch/torchtune issue 1652.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    precision, threads, reasons = settings.precision, settings.threads, []
    if precision == "auto":
        precision, reason = choose_precision(device)
        reasons.append(reason)
    if threads == "auto":
        limit = count_cpu_threads(settings.processes_here)
        threads = limit
        # Beside one busy program, two threads on two cores take 3 to 5 times as long as one.
        if device.type == "cpu" and limit > 1 and settings.processes_here == 1:
            threads = max(round(limit * (1 - psutil.cpu_percent(_LOOK) / 100)), 1)
        if threads < limit:
            reasons.append(f"threads {threads} of {limit}: other programs use the other cores")
    torch.set_num_threads(threads)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return Computing(precision=precision, reasons=tuple(reasons), threads=threads, gpu=gpu)


def choose_precision(device: torch.device) -> tuple[Precision, str]:
    """bf16 where a device has units for it, and a sentence that says so."""
    if device.type == "cuda":
        has_units = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "mps":
        has_units = torch.backends.mps.is_macos_or_newer(14, 0)
    else:  # what torch may use, and what the processor has
        has_units = torch.backends.cpu.get_cpu_capability() == "AVX512"
        has_units = has_units and torch.cpu._is_avx512_bf16_supported()
    if has_units:
        return "bf16", f"bf16: this {device.type} device has units for it"
    return "fp32", f"fp32: this {device.type} device has no units for bf16"


def count_cpu_threads(processes: int = 1) -> int:
    """Threads for one of several processes: its share of OMP_NUM_THREADS, or of the cores.

    Where torchrun started the processes, OMP_NUM_THREADS is for each, but torchrun's default of 1
    does not count as the user's choice.
    """
    value = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    if value.isdecimal() and int(value) and not (launched and processes > 1 and value == "1"):
        cores = int(value) * (processes if launched else 1)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(cores // processes, 1)
