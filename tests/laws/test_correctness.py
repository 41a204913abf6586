"""Each row of docs/INSIDE.md has a test that names it in a comment such as `# row 7`."""

import re
from pathlib import Path

from wordle_rl.runs.paths import ROOT

OPEN_ROWS = {39}  # rows that nothing holds yet
_COMMENT = re.compile(r"#.*?\brows? (\d+(?:(?:, | and | to |, and )\d+)*)")


def rows_in(text: str) -> set[int]:
    """The rows that the comments of a file name, as in "# rows 3, 5 to 7 and 12"."""
    rows = set()
    for listing in _COMMENT.findall(text):
        for part in re.split(r", and |, | and ", listing):
            first, _, last = part.partition(" to ")
            rows |= set(range(int(first), int(last or first) + 1))
    return rows


def test_every_row_is_held_by_a_test_that_names_it():
    page = (ROOT / "docs" / "INSIDE.md").read_text(encoding="utf-8")
    section = page.split("## What must be right")[1]
    rows = {int(number) for number in re.findall(r"^(\d+)\. ", section, re.M)}
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    test_rows = set().union(*(rows_in(path.read_text(encoding="utf-8")) for path in files))
    assert rows == test_rows | OPEN_ROWS, "rows without a test, or tests that name no row"
