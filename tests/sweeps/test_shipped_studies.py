"""Every figure on the pages of the shipped studies can be computed from the files beside them."""

from __future__ import annotations

import csv
import io
import json
import lzma
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps import page, pictures
from wordle_rl.sweeps.verdicts import judge, read_study

EFFECTS = json.loads(Path(__file__).with_name("effects.json").read_text())  # computed in 2026-11
STUDIES = sorted(path.parent for path in (ROOT / "sweeps").glob("*/study.json"))
QUICK = "algorithm"  # the largest; its eleven comparisons see a wrong correction by Holm


def studies() -> list[Any]:
    """The studies as parameters, all but one for the slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(f, id=f.name, marks=[] if f.name == QUICK else [slow]) for f in STUDIES]


@pytest.mark.parametrize("folder", studies())
def test_a_study_keeps_its_verdicts(folder):
    for found, kept in zip(judge(read_study(folder)), EFFECTS[folder.name], strict=True):
        for key, value in kept.items():
            same = pytest.approx(value, abs=1e-6) if isinstance(value, float) else value
            assert getattr(found, key) == same, (found.name, key)


def test_all_57_comparisons_are_kept_and_at_least_seven_studies_decide_something():
    assert sum(map(len, EFFECTS.values())) == 57
    assert sorted(EFFECTS) == [folder.name for folder in STUDIES]
    decided = [{e["verdict"] for e in found} - {"undecided"} for found in EFFECTS.values()]
    assert sum(map(bool, decided)) >= 7


@pytest.mark.parametrize("folder", studies())
def test_a_page_is_what_its_files_say(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "save_figure", lambda *_: None)  # the slowest part
    here = tmp_path / folder.name
    shutil.copytree(folder, here, ignore=shutil.ignore_patterns("study.db*", ".lock"))
    page.write_study(here)
    assert (here / "README.md").read_text() == (folder / "README.md").read_text()


@pytest.mark.parametrize("folder", studies())
def test_games_are_few_bytes_and_agree_with_the_trials(folder):
    """Counted without the package."""
    packed = (folder / "games.csv.xz").read_bytes()
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


def test_the_snippet_of_the_docs_computes_the_difference_that_the_page_shows(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "STUDIES.md").read_text(), re.S)
    exec(compile(code, "STUDIES.md", "exec"), {})
    told = dict(line.split() for line in capsys.readouterr().out.splitlines()[:-1])
    kept = EFFECTS["gen_count"][0]
    assert float(told["count"]) == kept["seeds"]
    assert float(told["mean"]) == pytest.approx(kept["difference"], abs=1e-6)


@pytest.mark.slow
def test_the_index_is_what_the_studies_say(tmp_path):
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    page.write_index(tmp_path / "sweeps")
    assert (tmp_path / "sweeps/README.md").read_text() == (ROOT / "sweeps/README.md").read_text()


def test_a_folder_has_at_most_five_files():
    allowed = {"README.md", "study.json", "results.csv", "games.csv.xz", pictures.PICTURE}
    for folder in STUDIES:
        left = {path.name for path in folder.iterdir()} - allowed
        assert not {name for name in left if not name.startswith(("study.db", "."))}, folder.name
