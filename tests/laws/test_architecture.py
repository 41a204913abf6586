"""docs/ARCHITECTURE.md names files and functions that exist."""

from __future__ import annotations

import ast
import re

import pytest

from wordle_rl.runs.paths import ROOT

PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "wordle_rl"
# `file.py`: `function`, `function`
NAMED = re.findall(r"`([\w/]+\.py)`:\s+((?:`\w+`(?:,\s+)?)+)", PAGE)


@pytest.mark.parametrize(("path", "functions"), NAMED)
def test_each_function_of_the_walk_is_in_its_file(path, functions):
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert set(re.findall(r"\w+", functions)) <= defined


def test_the_walk_goes_through_every_room_between_words_and_backends():
    rooms = {path.partition("/")[0] for path, _ in NAMED if "/" in path}
    assert rooms >= {"words", "game", "prompts", "rewards", "algorithms", "rollouts", "training"}


def test_every_room_and_every_group_of_conf_has_its_row():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.M))
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)?) \| `", PAGE, re.M)
    groups = {name for row in rows for name in re.findall(r"\w+", row)}
    shipped = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()}
    assert shipped - {"experiment", "hydra"} <= groups


def test_every_home_of_a_group_exists():
    homes = re.findall(r"^\| `\w+`.* \| `([\w/<>]+)(?:\.py)?` \|$", PAGE, re.M)
    assert len(homes) >= 10
    for home in homes:
        folder, _, name = home.rpartition("/")
        assert (PACKAGE / folder).is_dir()
        assert name == "<name>" or (PACKAGE / f"{home}.py").is_file()
