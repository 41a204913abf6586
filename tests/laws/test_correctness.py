"""docs/CORRECTNESS.md names the tests that hold each row, and the tests name their rows."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT

OPEN = {39}  # rows that nothing holds yet
LIST = (ROOT / "docs" / "CORRECTNESS.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^## (\d+)\. (.+?)\n(.*?)(?=^## |\Z)", re.M | re.S)
_FILE = re.compile(r"^- `(tests/[\w/]+\.py)`\n((?:  - `test_\w+`\n)+)", re.M)
_COMMENT = re.compile(r"#.*?\brows? (\d+(?:(?:, | and | to |, and )\d+)*)")


def rows_in(comment: str) -> set[int]:
    """The rows that a comment names, as in "# rows 3, 5 to 7 and 12"."""
    found = set()
    for named in _COMMENT.findall(comment):
        for part in re.split(r", and |, | and ", named):
            first, _, last = part.partition(" to ")
            found |= set(range(int(first), int(last or first) + 1))
    return found


def spans_of(source: str) -> list[tuple[str, int, int]]:
    """Name, first and last line of each test, with its decorators and comments above it."""
    lines = source.splitlines()
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            while first > 1 and lines[first - 2].startswith("#"):
                first -= 1
            assert node.end_lineno is not None
            found.append((node.name, first, node.end_lineno))
    return found


def rows_of_tests() -> dict[int, set[str]]:
    """Row -> the tests whose comments name it. A comment outside all tests is an error."""
    found = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text(encoding="utf-8")
        if path == Path(__file__) or not _COMMENT.search(source):
            continue
        spans = spans_of(source)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT:
                continue
            for row in rows_in(token.string):
                line = token.start[0]
                around = [test for test, first, last in spans if first <= line <= last]
                assert around, f"{name} line {line}: row {row} is named outside a test"
                found[row].add(f"{name}::{around[0]}")
    return found


ROWS = {
    int(number): {
        f"{file}::{test}"
        for file, tests in _FILE.findall(text)
        for test in re.findall(r"`(\w+)`", tests)
    }
    for number, _, text in _ROW.findall(LIST)
}
HELD = sorted(ROWS.keys() - OPEN)


@pytest.fixture(scope="module")
def named() -> dict[int, set[str]]:
    return rows_of_tests()


def test_comments_may_name_one_row_several_or_a_range():
    assert rows_in("# row 7: the first") == {7}
    assert rows_in("# rows 3, 5 to 7 and 12") == {3, 5, 6, 7, 12}
    assert rows_in("# in every row 5 is a number") == {5}
    assert rows_in("# rows 2 to the end") == {2}
    assert rows_in("# row by row") == set()


def test_the_list_has_39_rows_in_order():
    assert list(ROWS) == list(range(1, 40))


@pytest.mark.parametrize("row", HELD)
def test_a_row_names_the_tests_whose_comments_name_it(row, named):
    assert ROWS[row] == named[row] and named[row]


def test_exactly_the_open_rows_are_marked_open(named):
    marked = {int(number) for number, _, text in _ROW.findall(LIST) if "**Open.**" in text}
    assert marked == OPEN
    assert not any(ROWS[row] or named[row] for row in OPEN)


def test_no_comment_names_a_row_that_is_not_in_the_list(named):
    assert named.keys() <= ROWS.keys()
