"""Loads a script of examples/, which is no package, as a module."""

import importlib.util
from pathlib import Path
from types import ModuleType


def load_example(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
