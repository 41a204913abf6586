"""How values travel between processes and wait in checkpoints: pickled, read without running code.

Pickle can name any function of any module to be called. Here it can name the data classes and
enumerations of this package and what numpy's arrays are made of. So someone who can write into the
connection or the file can disturb a run, but not run a program.
"""

import importlib
import io
import pickle
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

_PACKAGE = "wordle_rl."
_SAFE_GLOBALS = {
    ("builtins", "range"),
    ("collections", "Counter"),
    ("collections", "OrderedDict"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("pathlib", "PosixPath"),
}


def write(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def read(data: bytes) -> Any:
    """The value that write() turned into bytes. Raises UnpicklingError for anything else."""
    return _Reader(io.BytesIO(data)).load()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SAFE_GLOBALS:
            return super().find_class(module, name)
        if module.startswith(_PACKAGE) and "." not in name:
            cls = getattr(importlib.import_module(module), name, None)
            if isinstance(cls, type) and (is_dataclass(cls) or issubclass(cls, Enum)):
                return cls
        raise pickle.UnpicklingError(f"refused {module}.{name}, which no run sends or keeps")
