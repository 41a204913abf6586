"""A CUDA graph on a CPU: operations are recorded once, and run again on the same memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# What a graph cannot hold: the host would wait, or numbers would come from its memory.
_OF_THE_HOST = {"_local_scalar_dense", "nonzero", "lift_fresh", "is_nonzero", "_unique2"}


def record(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Call a function and return what repeats its operations, without any of its Python."""
    with _Recorder() as recorder:
        output = function()

    def replay() -> torch.Tensor:
        for operation, inputs, options, results in recorder.calls:
            values = tree_leaves(operation(*inputs, **options))
            for result, value in zip(results, values, strict=True):
                if result.data_ptr() != value.data_ptr():  # else it is a view or was written to
                    result.copy_(value)
        return output

    return replay


class _Recorder(TorchDispatchMode):
    """Keeps each operation with its inputs and results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        assert name not in _OF_THE_HOST, f"{name} cannot be part of a CUDA graph"
        results = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, tree_leaves(results)))
        return results
