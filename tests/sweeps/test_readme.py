"""The page of a study: its tables, its picture, and what a person wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.helpers.studies import work
from wordle_rl.__main__ import run
from wordle_rl.sweeps.readme import BEGIN, END, UNWRITTEN, write_page

NODE = {
    "params": {"x": "choice(0.1, 0.9)", "y": "choice(a, b)", "seed": "choice(0, 1)"},
    "question": "Is x good?",
    "confirm_seeds": [7],
    "default": {"x": 0.1, "y": "a"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    work(root, **NODE)
    write_page(root / "study")
    return root


def test_a_page_has_its_tables_and_a_picture(root):
    page = root / "study" / "README.md"
    text = page.read_text()
    assert "Is x good?" in text
    assert "| x=0.9 y=a | 2 | 40 | 49.0 ± 0.0 | +" in text
    assert "| winner | 1 | 40 | 49.0 |" in text and "| default | 1 | 40 | 9.0 |" in text
    # once under each table, though every trial has it
    assert text.count("\n- Lineage: fake. word") == 2
    assert all(len(line) <= 100 for line in text.splitlines() if "word word" in line)
    assert [path.name for path in page.parent.glob("*.png")] == ["curves.png"]
    assert "](curves.png)" in text and not re.search(r"\n{3,}", text)


def test_what_a_person_wrote_stays_and_an_index_beside_the_folder_shows_it(
    root, tmp_path, monkeypatch
):
    root = shutil.copytree(root, tmp_path / "sweeps")
    page = root / "study" / "README.md"
    monkeypatch.setattr("wordle_rl.sweeps.readme.save_figure", lambda *_: None)  # the slowest part
    text = page.read_text().replace(UNWRITTEN, "More x, more wins.\n\nBecause.")
    page.write_text(text.replace("Is x good?", "Is x good? (Asked in November.)"))
    (root / "README.md").write_text(f"# Mine\n\n{BEGIN}\n{END}\n\nThe end.\n")
    assert write_page(root / "study").read_text() == page.read_text()
    assert "More x, more wins.\n\nBecause." in page.read_text()
    assert "(Asked in November.)" in page.read_text()
    text = (root / "README.md").read_text()
    assert text.startswith("# Mine\n") and text.endswith("\nThe end.\n")
    assert "## [study](study/README.md)\n\nMore x, more wins.\n\n![" in text
    assert "| [study](study/README.md) | Is x good? | x=0.1 y=b against x=0.1 y=a: " in text
    page.write_text("No markers.")
    with pytest.raises(ValueError, match="must have the lines"):
        write_page(root / "study")
    assert page.read_text() == "No markers."


def test_a_study_can_be_asked_what_it_can_find(capsys):
    run(["judge", "gen_count", "--power"])
    said = capsys.readouterr().out
    assert "pilot gen_count: differences between two arms vary by 0.115 guesses" in said
    assert "find a difference of 0.235 guesses with a chance of 80 %" in said
