"""The law of sizes: a file has at most 500 lines, a function at most 60."""

import ast

from wordle_rl.runs.paths import ROOT

FUNCTION, FILE = 60, 500
PACKAGE = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "wordle_rl").rglob("*.py"))
}


def test_no_file_is_too_long():
    lines = {name: len(source.splitlines()) for name, source in PACKAGE.items()}
    assert lines and not {name: count for name, count in lines.items() if count > FILE}


def test_no_function_is_too_long():
    faults = [
        f"{name} line {node.lineno}: {node.name}"
        for name, source in PACKAGE.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION
    ]
    assert not faults, "\n".join(faults)
