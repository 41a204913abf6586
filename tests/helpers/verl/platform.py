"""The CPU as an accelerator for verl, by its public registry of platforms.

verl imports this module in all of its processes (VERL_USE_EXTERNAL_MODULES).
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

_ZEROS = (
    *("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
    "memory_cached",
)
_NOTHING = ("empty_cache", "reset_peak_memory_stats", "set_device", "ipc_collect")


class _Device(types.ModuleType):
    """torch.cpu, with answers to what only accelerators are asked."""

    def __getattr__(self, name: str) -> Any:
        if name in _ZEROS or name in _NOTHING:
            return lambda *_, **__: 0 if name in _ZEROS else None
        if name in ("mem_get_info", "get_device_name"):
            return lambda *_, **__: (0, 0) if name == "mem_get_info" else "cpu"
        return getattr(torch if name in ("get_rng_state", "set_rng_state") else torch.cpu, name)


_DEVICE = _Device("cpu_device")
_DEVICE.is_available = lambda: False  # of CUDA, which verl means


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One device per process."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _DEVICE

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def current_device(self) -> str:
        return "cpu"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"  # a logical one, from ray start --num-gpus

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def _nothing(self, *_: Any) -> None: ...

    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing


_join = torch.distributed.init_process_group


def _join_once(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
    """torch refuses `cpu:gloo,cpu:gloo`, which verl makes of the CPU and the device."""
    once = "cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend
    return _join(once, *args, **kwargs)


torch.distributed.init_process_group = _join_once
