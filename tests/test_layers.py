"""The import law: words know nothing of tokens, tokens nothing of tensors, backends come late."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "wordle_rl"
BACKENDS = f"{PACKAGE}.backends"
TENSORS = {
    *("torch", "lightning", "lightning_fabric", "pytorch_lightning", "transformers", "peft"),
    *("mlx", "mlx_lm", "accelerate", "safetensors", "tokenizers", "huggingface_hub", "tensorboard"),
}
CONFIG = {"hydra", "omegaconf"}
CONFIG_READERS = {"train", "eval", *(f"{PACKAGE}.{m}" for m in ("build", "run", "cli", "evaluate"))}
CONFIG_READERS.add(f"{PACKAGE}.earlier_run")
CONFIG_READERS.add(f"{PACKAGE}.sweeps.grammar")
# The space of words: plain Python and numpy. A module that is not here may know tokens.
WORDS = {
    PACKAGE,
    *(f"{PACKAGE}.{m}" for m in ("game", "words", "feedback_table", "splits", "knowledge", "bits")),
    *(f"{PACKAGE}.{m}" for m in ("entropy", "prompts", "parser", "boards", "game_statistics")),
    *(f"{PACKAGE}.{m}" for m in ("components", "disk", "json_files", "players", "rewards")),
    *(f"{PACKAGE}.{m}" for m in ("curricula", "reasoning", "regret", "skill", "tool_calls")),
    *(f"{PACKAGE}.{m}" for m in ("start", "endings", "libraries", "user_files", "untrusted")),
}


@dataclass(frozen=True)
class Import:
    """One name that a module imports, wherever in its source."""

    importer: str
    name: str  # dotted; of `from a import b`, a.b where that is a module of the project, else a
    line: int
    late: bool  # inside a function

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.name}"


def project_files() -> dict[str, Path]:
    """Module name -> file, of the package and the commands."""
    files = {name: ROOT / f"{name}.py" for name in ("train", "eval")}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


FILES = project_files()


def is_within(module: str, parent: str) -> bool:
    return module == parent or module.startswith(f"{parent}.")


def is_words(module: str) -> bool:
    return module in WORDS or any(is_within(module, space) for space in WORDS - {PACKAGE})


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


def root(name: str) -> str:
    return name.partition(".")[0]


def test_the_reader_of_imports_finds_every_way_to_import():
    source = """
import os, torch.nn as nn
from . import bits
from ..game import Game
if TYPE_CHECKING:
    from peft import LoraConfig
class A:
    import mlx.core
    def late(self):
        from wordle_rl import backends
        return lambda: importlib.import_module("lightning"), __import__("hydra")
"""
    found = imports_of("wordle_rl.players.mine", source)
    assert {(item.name, item.late) for item in found} == {
        ("os", False),
        ("torch.nn", False),
        ("wordle_rl.players", False),
        ("wordle_rl.game", False),
        ("peft", False),
        ("mlx.core", False),
        ("wordle_rl.backends", True),
        ("lightning", True),
        ("hydra", True),
    }
    inside = imports_of("wordle_rl.players", "from . import tree", is_package=True)
    assert [item.name for item in inside] == ["wordle_rl.players.tree"]


def test_only_backends_import_tensor_libraries_even_inside_functions(imports):
    wrong = [
        item
        for item in imports
        if root(item.name) in TENSORS and not is_within(item.importer, BACKENDS)
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_backends_are_imported_late_outside_themselves(imports):
    wrong = [
        item
        for item in imports
        if is_within(item.name, BACKENDS)
        and not is_within(item.importer, BACKENDS)
        and not item.late
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_words_import_only_words_numpy_and_the_standard_library(imports):
    wrong = [
        item
        for item in imports
        if is_words(item.importer)
        and not is_words(item.name)
        and root(item.name) not in {"numpy", *sys.stdlib_module_names}
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_config_objects_stop_at_the_commands_and_the_builder(imports):
    wrong = [
        item
        for item in imports
        if root(item.name) in CONFIG and item.importer not in CONFIG_READERS
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_only_studies_import_optuna_and_no_training_run_does(imports):
    sweeps = f"{PACKAGE}.sweeps"
    wrong = [i for i in imports if root(i.name) == "optuna" and not is_within(i.importer, sweeps)]
    assert not wrong, "\n".join(map(str, wrong))
    ours = [i for i in imports if is_within(i.name, sweeps) and not is_within(i.importer, sweeps)]
    assert {i.importer for i in ours} == {f"{PACKAGE}.study"}
    # Hydra imports its plugins at every start
    plugins = [*(ROOT / "hydra_plugins").glob("*.py")]
    for item in (i for p in plugins for i in imports_of(f"hydra_plugins.{p.stem}", p.read_text())):
        assert item.late or not is_within(item.name, sweeps), item
    assert not (ROOT / "hydra_plugins" / "__init__.py").exists(), "it is a namespace"


def test_every_module_named_in_the_law_exists():
    named = {*WORDS, *CONFIG_READERS, BACKENDS}
    assert named <= set(FILES), sorted(named - set(FILES))


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
    ("blocked", "space"),
    [
        (TENSORS, [m for m in FILES if not is_within(m, BACKENDS)]),
        (TENSORS | CONFIG | {"optuna", "matplotlib", "rich"}, [m for m in FILES if is_words(m)]),
    ],
    ids=["all but the backends", "words"],
)
def test_modules_import_where_the_lower_layers_are_not_installed(blocked, space):
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, ",".join(sorted(blocked)), ",".join(space)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{len(space)}\n"
