"""The CPU as an accelerator for verl, by its public registry of platforms.

verl imports this module in all of its processes (VERL_USE_EXTERNAL_MODULES).
"""

import contextlib
import types
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

_NO_OPS = (
    *("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
    *("memory_cached", "empty_cache", "reset_peak_memory_stats", "set_device", "ipc_collect"),
)


class _Device(types.ModuleType):
    """torch.cpu. What only accelerators are asked is 0: memory, and whether CUDA is there."""

    def __getattr__(self, name: str) -> Any:
        if name in ("mem_get_info", "get_device_name"):
            return lambda *_, **__: (0, 0) if name == "mem_get_info" else "cpu"
        if name in ("get_rng_state", "set_rng_state"):
            return getattr(torch, name)
        return (lambda *_, **__: 0) if name in _NO_OPS else getattr(torch.cpu, name)


_DEVICE = _Device("cpu_device")
_DEVICE.is_available = lambda: False  # of CUDA, which verl means
_FACTS = {
    "is_available": True,
    "current_device": "cpu",
    "device_count": 1,
    "get_device_capability": (None, None),
    "communication_backend_name": "gloo",
    "visible_devices_envvar": "CUDA_VISIBLE_DEVICES",
    "ray_noset_envvars": [],
    "ray_resource_name": "GPU",  # a logical one, from ray start --num-gpus
    "is_ipc_supported": False,
}


def _const(answer: Any) -> Any:
    return lambda self, *_, **__: answer


# One device per process. It does nothing where nothing is said of it.
_methods = {name: _const(_FACTS.get(name)) for name in (*PlatformBase.__abstractmethods__, *_FACTS)}
_methods |= dict.fromkeys(
    ("manual_seed", "manual_seed_all"), lambda self, seed: torch.manual_seed(seed)
)
_methods |= {"nvtx_range": lambda self, msg: contextlib.nullcontext()}
_methods |= {"device_name": "cpu", "vendor_name": "cpu", "device_module": _DEVICE}
PlatformCPU = PlatformRegistry.register(platform="cpu")(
    type("PlatformCPU", (PlatformBase,), _methods)
)
_join = torch.distributed.init_process_group


def _join_once(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
    """torch refuses `cpu:gloo,cpu:gloo`, which verl makes of the CPU and the device."""
    kind = "cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend
    return _join(kind, *args, **kwargs)


torch.distributed.init_process_group = _join_once
