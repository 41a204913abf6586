"""The law of imports: what may import what, read from the imports themselves.

A room is a folder of wordle_rl/. It imports only the rooms to its left in ROOMS. Imports inside
functions and for type checkers count like all others.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT

PACKAGE = "wordle_rl"
ROOMS = (
    *("runs", "words", "game", "prompts", "rewards", "evaluation", "algorithms", "policy"),
    *("rollouts", "data", "training", "backends", "adapters", "export", "reports", "web"),
    *("sweeps", "commands"),
)
STUDIES = "sweeps"  # import runs alone
COMMANDS = "commands"
LOOSE = ""  # the room of train.py, eval.py, the sweeper, and wordle_rl/__init__.py and __main__.py
TENSORS = {
    *("torch", "lightning", "lightning_fabric", "pytorch_lightning", "transformers", "peft"),
    *("mlx", "mlx_lm", "accelerate", "safetensors", "tokenizers", "huggingface_hub", "tensorboard"),
}
CONFIG = {"hydra", "omegaconf", "yaml"}
WEB = {"starlette", "uvicorn", "anyio", "httpx"}
HTTP = "httpx2"  # of servers that play
PLAIN = set(ROOMS[1 : ROOMS.index("backends")])  # rooms of plain Python and numpy
# But for tables, the bar below the steps, and the memory in use.
INSTALLED = {("evaluation", "rich"), ("training", "rich"), ("training", "psutil")}


@dataclass(frozen=True)
class Import:
    """One name that a module imports, wherever in its source."""

    importer: str
    name: str  # dotted; of `from a import b`, a.b where that is a module of the project, else a
    line: int
    late: bool  # inside a function

    def __str__(self) -> str:
        return f"{self.importer} line {self.line}: imports {self.name}"


def project_files() -> dict[str, Path]:
    """Module name -> file, of the package and the commands."""
    files = {name: ROOT / f"{name}.py" for name in ("train", "eval")}
    for folder in (PACKAGE, "hydra_plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


FILES = project_files()


def room_of(module: str) -> str | None:
    """The room of one of our modules; None for other libraries."""
    if module not in FILES:
        return None
    inside = FILES[module].relative_to(ROOT).parts[1:-1]
    return inside[0] if module.startswith(f"{PACKAGE}.") and inside else LOOSE


def imports_of(importer: str, source: str, *, is_package: bool = False) -> list[Import]:
    """Every import of a module's source: relative, late, type-checking and by name included."""
    package = importer if is_package else importer.rpartition(".")[0]

    def names(node: ast.Import | ast.ImportFrom | ast.Call) -> Iterator[str]:
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = node.module or ""
                if node.level:
                    parts = package.split(".")
                    base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
                for alias in node.names:
                    submodule = f"{base}.{alias.name}"
                    yield submodule if submodule in FILES else base
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name

    found = []

    def visit(node: ast.AST, late: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            found.extend(Import(importer, name, node.lineno, late) for name in names(node))
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, late)

    visit(ast.parse(source), False)
    return found


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return [
        item
        for module, path in FILES.items()
        for item in imports_of(
            module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py"
        )
    ]


def breaks_the_law(item: Import) -> bool:
    importer, imported = room_of(item.importer), room_of(item.name)
    if imported is None or importer in (imported, LOOSE):
        return False
    if imported == LOOSE:
        return True
    if importer == STUDIES:
        return imported != "runs"
    return imported not in ROOMS[: ROOMS.index(importer)]


def assert_none(wrong: Iterable[Import]) -> None:
    assert not [*wrong], "\n".join(map(str, wrong))


def library(name: str) -> str:
    return name.partition(".")[0]


def test_the_reader_of_imports_finds_every_way_to_import():
    source = """
import os, torch.nn as nn
from . import replay
from ..loop import Game
if TYPE_CHECKING:
    from peft import LoraConfig
class A:
    import mlx.core
    def late(self):
        from wordle_rl import backends
        return lambda: importlib.import_module("lightning"), __import__("hydra")
"""
    found = imports_of("wordle_rl.training.curricula.mine", source)
    early = {"os", "torch.nn", "peft", "mlx.core"}
    early |= {f"wordle_rl.training.{name}" for name in ("curricula.replay", "loop")}
    assert {item.name for item in found if not item.late} == early
    assert {i.name for i in found if i.late} == {"wordle_rl.backends", "lightning", "hydra"}
    inside = imports_of("wordle_rl.training.curricula", "from . import replay", is_package=True)
    assert [item.name for item in inside] == ["wordle_rl.training.curricula.replay"]


def test_every_folder_is_a_room_and_no_module_lies_loose():
    package = ROOT / PACKAGE
    assert {path.relative_to(package).parts[0] for path in package.rglob("*/*.py")} <= {*ROOMS}
    assert {path.stem for path in package.glob("*.py")} == {"__init__", "__main__"}


def test_every_room_imports_only_rooms_to_its_left(imports):
    wrong = [item for item in imports if breaks_the_law(item)]
    assert_none(wrong)


def test_no_modules_import_each_other_in_a_circle(imports):
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for item in imports:
        if item.name in FILES and item.name != item.importer:
            sorter.add(item.importer, item.name)
    sorter.prepare()  # a CycleError names the modules


def test_only_backends_import_tensor_libraries_even_inside_functions(imports):
    wrong = [i for i in imports if library(i.name) in TENSORS and room_of(i.importer) != "backends"]
    assert_none(wrong)


def test_backends_are_imported_late_outside_themselves(imports):
    outside = [i for i in imports if room_of(i.name) == "backends" != room_of(i.importer)]
    loader = f"{PACKAGE}.backends"
    assert_none([i for i in outside if i.name != loader and not i.late])


def test_only_web_imports_a_web_framework(imports):
    wrong = [i for i in imports if library(i.name) in WEB and room_of(i.importer) != "web"]
    assert_none(wrong)
    # A game in the terminal needs none, so those files are imported late, and by the command alone.
    inside = [i for i in imports if room_of(i.importer) == "web"]
    framework = {i.importer for i in inside if library(i.name) in WEB}
    framework |= {i.importer for i in inside if i.name in framework}
    early = [i for i in imports if i.name in framework and i not in inside]
    assert framework
    assert_none([i for i in early if not i.late])


def test_only_the_client_of_vllm_speaks_http_and_it_is_imported_late(imports):
    client = f"{PACKAGE}.backends.vllm"
    speaking = {i.importer for i in imports if library(i.name) == HTTP}
    assert speaking == {client}
    users = [i for i in imports if i.name == client]
    assert users
    assert_none([item for item in users if not item.late])


def test_rooms_need_only_numpy_until_the_backends(imports):
    known = {PACKAGE, "numpy", *sys.stdlib_module_names}
    wrong = [
        i for i in imports
        if room_of(i.importer) in PLAIN
        and library(i.name) not in known
        and (room_of(i.importer), library(i.name)) not in INSTALLED
    ]  # fmt: skip
    assert_none(wrong)


def test_config_objects_stop_before_the_rooms(imports):
    wrong = [
        item
        for item in imports
        if library(item.name) in CONFIG
        and room_of(item.importer) not in (LOOSE, COMMANDS, STUDIES)
        and room_of(item.importer) != "adapters"  # composes conf/ for programs, writes verl's YAML
        and not (room_of(item.importer) == "runs" and item.late)
    ]
    assert_none(wrong)


def test_no_training_run_imports_optuna(imports):
    wrong = [i for i in imports if library(i.name) == "optuna" and room_of(i.importer) != STUDIES]
    assert_none(wrong)
    # Hydra imports its plugins at every start.
    early = [i for i in imports if i.importer.startswith("hydra_plugins") and not i.late]
    assert not [i for i in early if room_of(i.name) == STUDIES]
    assert not (ROOT / "hydra_plugins" / "__init__.py").exists(), "it is a namespace"


IMPORT_ALL = """
import importlib, sys

blocked, modules = set(sys.argv[1].split(",")), sys.argv[2].split(",")

class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refuse)
for module in modules:
    importlib.import_module(module)
print(len(modules))
"""


@pytest.mark.parametrize(
    ("blocked", "modules"),
    [
        (TENSORS, [m for m in FILES if room_of(m) not in ("backends", "adapters")]),
        (TENSORS | CONFIG | {"optuna", "matplotlib"}, [m for m in FILES if room_of(m) in PLAIN]),
    ],
    ids=["all but the backends", "plain rooms"],
)
def test_modules_import_where_what_lies_to_their_right_is_not_installed(blocked, modules):
    given = [IMPORT_ALL, ",".join(sorted(blocked)), ",".join(modules)]
    result = subprocess.run(
        [sys.executable, "-c", *given], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{len(modules)}\n"
