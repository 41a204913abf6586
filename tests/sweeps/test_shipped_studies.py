"""Every figure on the pages of the shipped studies can be computed from the files beside them."""

from __future__ import annotations

import csv
import io
import json
import lzma
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from wordle_rl import study
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps import plots
from wordle_rl.sweeps.games import FILE

STUDIES = sorted(path.parent for path in (ROOT / "sweeps").glob("*/study.json"))
WITH_GAMES = [folder for folder in STUDIES if (folder / FILE).is_file()]
QUICK = "algorithm"  # the largest; its eleven comparisons see a wrong correction by Holm


def studies(folders: list[Path]) -> list[Any]:
    """The studies as parameters, all but one for the slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(f, id=f.name, marks=[] if f.name == QUICK else [slow]) for f in folders]


@pytest.mark.parametrize("folder", studies(STUDIES))
def test_a_page_is_what_its_files_say(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "save_figure", lambda figure, out: None)  # the slowest part
    here = tmp_path / folder.name
    shutil.copytree(folder, here, ignore=shutil.ignore_patterns("study.db*", ".lock"))
    study.write_report(here)
    assert (here / "README.md").read_text() == (folder / "README.md").read_text()
    again, shipped = (json.loads((path / "effects.json").read_text()) for path in (here, folder))
    for one, other in zip(again.pop("effects"), shipped.pop("effects"), strict=True):
        assert one == {k: pytest.approx(v) if isinstance(v, float) else v for k, v in other.items()}
    assert again == shipped


@pytest.mark.parametrize("folder", studies(WITH_GAMES))
def test_games_are_few_bytes_and_agree_with_the_trials(folder):
    packed = (folder / FILE).read_bytes()
    assert len(packed) < 2_000_000
    games = list(csv.DictReader(io.StringIO(lzma.decompress(packed).decode())))
    trials = csv.DictReader(io.StringIO((folder / "results.csv").read_text()))
    for trial in trials:
        if trial["state"] != "complete":
            continue
        key = (trial["round"], trial["trial"])
        own = [g for g in games if (g["round"], g["trial"]) == key]
        last = max(int(g["step"]) for g in own)
        wins = [g["guesses"].split()[-1] == g["secret"] for g in own if int(g["step"]) == last]
        # The last validation of the curve, which is the one that the games are from.
        assert statistics.fmean(wins) == pytest.approx(json.loads(trial["curve"])[-1][1]), key


def test_at_least_seven_studies_have_a_verdict():
    verdicts = {
        folder.name: [
            e["verdict"] for e in json.loads((folder / "effects.json").read_text())["effects"]
        ]
        for folder in STUDIES
    }
    decided = [name for name, found in verdicts.items() if {*found} - {"undecided"}]
    assert len(decided) >= 7, verdicts


def test_the_index_names_every_study_and_its_effect():
    index = (ROOT / "sweeps" / "README.md").read_text()
    for folder in STUDIES:
        assert f"| [{folder.name}]({folder.name}/README.md) |" in index
