"""The page of a study: its tables, its picture, and what a person wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from optuna.distributions import IntDistribution, distribution_to_json

from tests.helpers.studies import work
from wordle_rl.__main__ import run
from wordle_rl.sweeps.readme import (
    BEGIN,
    END,
    UNWRITTEN,
    draw_study,
    list_arms,
    write_page,
)
from wordle_rl.sweeps.results import FIGURES
from wordle_rl.sweeps.verdicts import Study, read_study

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
    return root


def study_of(folder: Path, *trials: dict[str, Any]) -> Study:
    """A study of a grid over x whose files have these trials."""
    item = json.loads(distribution_to_json(IntDistribution(0, 9)))
    record = {"name": "s", "question": "?", "command": ["train.py"], "analysis": {},
              "identity": {"space": {"x": item, "seed": item}, "grid": True}}  # fmt: skip
    columns = ["trial", "round", "state", "x", "seed", "val_win_rate", *FIGURES]
    rows = [{"trial": n, "round": "search", "state": "complete", "x": 1, "seed": 0, **trial}
            for n, trial in enumerate(trials)]  # fmt: skip
    pd.DataFrame(rows, columns=pd.Index(columns)).to_csv(folder / "results.csv", index=False)
    (folder / "study.json").write_text(json.dumps(record))
    return read_study(folder)


def test_a_table_has_a_row_for_each_arm_and_counts_what_did_not_complete(tmp_path):
    study = study_of(
        tmp_path,
        {"val_win_rate": 0.5, "no_spread": 0.25, "test_win_rate": 0.4},
        {"val_win_rate": 0.7, "no_spread": 0.35, "seed": 1},
        {"state": "pruned", "seed": 2},
        {"val_win_rate": 0.2, "x": 2},
    )
    # t(1 df) * stdev / sqrt(2) = 12.706 * 10 points, and * 5
    assert list_arms(study.trials, None) == [
        ["arm", "seeds", "validation wins %", "test wins %", "groups without spread %"],
        ["x=1", "2, 1 pruned", "60.0 ± 127.1", "40.0", "30.0 ± 63.5"],
        ["x=2", "1", "20.0", "-", "-"],
    ]


def test_arms_are_compared_with_the_default_seed_by_seed(tmp_path):
    wins = {1: (0.50, 0.60, 0.90), 2: (0.55, 0.61, None)}
    trials = [
        {"x": x, "seed": seed, "val_win_rate": value, "test_win_rate": 0.5 - 0.1 * x,
         "state": "complete" if value else "pruned"}
        for x, values in wins.items() for seed, value in enumerate(values)
    ]  # fmt: skip
    titles, first, second = list_arms(study_of(tmp_path, *trials).trials, "x=1")
    places = [titles.index(title) for title in ("validation, to default", "test, to default")]
    assert [first[place] for place in places] == ["default", "default"]
    # 5 points and 1; t(1 df) * stdev / sqrt(2) = 12.706 * 2
    assert [second[place] for place in places] == ["+3.0 ± 25.4", "-10.0 ± 0.0"]


def test_a_page_has_its_tables_and_a_picture(root):
    page = write_page(root / "study")
    text = page.read_text()
    assert "Is x good?" in text
    assert "| x=0.9 y=a | 2 | 40 | 49.0 ± 0.0 | +" in text
    assert "| winner | 1 | 40 | 49.0 |" in text and "| default | 1 | 40 | 9.0 |" in text
    # once under each table, though every trial has it
    assert text.count("\n- Lineage: fake. word") == 2
    assert all(len(line) <= 100 for line in text.splitlines() if "word word" in line)
    assert [path.name for path in page.parent.glob("*.png")] == ["curves.png"]
    assert "](curves.png)" in text and not re.search(r"\n{3,}", text)


def test_what_a_person_wrote_stays_and_an_index_beside_the_folder_shows_it(root, monkeypatch):
    page = write_page(root / "study")
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
    page.unlink()


def test_a_study_can_be_asked_what_it_can_find(capsys):
    run(["judge", "gen_count", "--power"])
    said = capsys.readouterr().out
    assert "pilot gen_count: differences between two arms vary by 0.115 guesses" in said
    assert "resolution: a difference of 0.235 guesses is found with a chance of 80 %" in said


def grid_of(folder: Path, arms: int, seeds: int = 3) -> Study:
    """A study of arms that win 30 % and more, from a common start of 26 %."""
    return study_of(folder, *(
        {"x": x, "seed": seed, "val_win_rate": 0.4 + 0.02 * x + 0.01 * seed,
         "curve": json.dumps([(0, 0.25 + 0.01 * seed), (640, 0.3 + 0.02 * x + 0.01 * seed),
                              (1280, 0.4 + 0.02 * x + 0.01 * seed)])}
        for x in range(arms) for seed in range(seeds)
    ))  # fmt: skip


def test_a_picture_has_words_units_the_start_and_the_number_of_seeds(tmp_path):
    figure = draw_study(grid_of(tmp_path, 6))
    assert figure is not None
    upper, lower = figure.axes
    assert [line.get_label() for line in upper.lines] == [f"x={x}" for x in range(6)]
    assert upper.get_ylabel() == lower.get_xlabel() == "validation games won (%)"
    assert upper.get_xlabel() == "training games"
    assert "start, 26.0 %" in [line.get_label() for line in lower.lines]
    [note] = [text.get_text() for text in figure.texts]
    assert note.endswith("95 % interval (Student's t), n = 3.")
