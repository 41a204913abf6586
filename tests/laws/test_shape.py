"""The law of sizes: how long code may be, and what test modules may share."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT

FUNCTION, CLASS, FILE = 60, 200, 500  # lines of code in wordle_rl/
PARAMETERS = 5  # of a function in the rooms below, self and cls aside
FEW_PARAMETERS = ("wordle_rl/training", "wordle_rl/rollouts")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(folder: str) -> Iterator[tuple[str, str]]:
    """Name and source of each Python file below a folder."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def nodes(source: str, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def too_long(name: str, source: str) -> Iterator[str]:
    for node in nodes(source, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        assert isinstance(node, Function | ast.ClassDef) and node.end_lineno is not None
        lines = node.end_lineno - node.lineno + 1
        most = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
        if lines > most:
            yield f"{name} line {node.lineno}: {node.name} has {lines} lines, and at most {most}"
    if (lines := len(source.splitlines())) > FILE:
        yield f"{name}: has {lines} lines, and at most {FILE}"


def too_many_parameters(name: str, source: str) -> Iterator[str]:
    for node in nodes(source, ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, Function)
        given = node.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        count = len([one for one in named if one and one.arg not in ("self", "cls")])
        if count > PARAMETERS:
            yield (
                f"{name} line {node.lineno}: {node.name} takes {count} parameters, "
                f"and at most {PARAMETERS}"
            )


def imports_of_test_modules(name: str, source: str) -> Iterator[str]:
    for node in nodes(source, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.ImportFrom):
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            assert isinstance(node, ast.Import)
            imported = [alias.name for alias in node.names]
        for module in imported:
            if module.startswith("tests.") and not module.startswith("tests.helpers."):
                yield f"{name} line {node.lineno}: imports {module}; share it in tests/helpers/"


def told(problems: Iterable[str]) -> str:
    return "\n".join(problems)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f():\n" + "    x = 1\n" * 60, "x.py line 1: f has 61 lines, and at most 60"),
        ("class C:\n" + "    x = 1\n" * 200, "x.py line 1: C has 201 lines, and at most 200"),
        ("x = 1\n" * 501, "x.py: has 501 lines, and at most 500"),
        ("def f():\n" + "    x = 1\n" * 59, ""),
    ],
)
def test_what_is_too_long_is_named_with_its_line(source, said):
    assert told(too_long("x.py", source)) == said


@pytest.mark.parametrize(
    ("source", "guilty"),
    [
        ("class C:\n    def f(self, a, b, c, d, e): ...", False),
        ("def f(a, b, c, *, d, e, g): ...", True),
        ("def f(a, /, b, c, *d, **e): ...", False),
        ("def f(a, b, c, d, *e, **g): ...", True),
    ],
)
def test_parameters_of_every_kind_count_but_self(source, guilty):
    assert bool(told(too_many_parameters("x.py", source))) is guilty


@pytest.mark.parametrize(
    ("source", "guilty"),
    [
        ("from tests.helpers.runs import run", False),
        ("from tests.helpers import runs", False),
        ("from tests.game.test_rules import play", True),
        ("from tests.game import test_rules", True),
        ("def f():\n    import tests.game.test_rules", True),
    ],
)
def test_an_import_of_another_test_module_is_found(source, guilty):
    assert bool(told(imports_of_test_modules("x.py", source))) is guilty


def test_no_function_class_or_file_is_too_long():
    found = [p for name, source in sources("wordle_rl") for p in too_long(name, source)]
    assert not found, told(found)


@pytest.mark.parametrize("folder", FEW_PARAMETERS)
def test_no_function_of_the_training_loop_takes_many_parameters(folder):
    found = [p for name, source in sources(folder) for p in too_many_parameters(name, source)]
    assert not found, told(found)


def test_no_test_module_imports_another():
    found = [p for name, source in sources("tests") for p in imports_of_test_modules(name, source)]
    assert not found, told(found)


def test_no_code_is_in_both_backends(tmp_path):
    def repeated(files: list[Path]) -> str:
        """What pylint's detector of duplicate code says; its command that only compares text."""
        command = [
            sys.executable,
            "-m",
            "pylint.checkers.symilar",
            "-d",
            "8",
            "-i",
            *map(str, files),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    files = sorted((ROOT / "wordle_rl" / "backends").rglob("*.py"))
    found = repeated(files)
    assert "duplicates=0 " in found, found
    copy = shutil.copy(files[-1], tmp_path / "copy.py")
    assert "duplicates=0 " not in repeated([files[-1], copy])
