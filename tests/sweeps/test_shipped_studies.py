"""Every figure on the pages of the shipped studies can be computed from the files beside them."""

import io
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from wordle_rl.runs.files import read_json
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps import readme
from wordle_rl.sweeps.verdicts import judge, read_study

STUDIES = sorted(path.parent for path in (ROOT / "sweeps").glob("*/study.json"))
each_study = pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)


@pytest.mark.slow
@each_study
def test_a_study_keeps_its_verdicts_and_a_stranger_finds_the_same(folder):
    effects = read_json(folder / "study.json")["effects"]
    for effect, node in zip(judge(read_study(folder)), effects, strict=True):
        for key, value in node.items():
            expected = pytest.approx(value, abs=1e-6) if isinstance(value, float) else value
            assert getattr(effect, key) == expected, (effect.name, key)
    command = [sys.executable, "-I", str(ROOT / "research" / "recompute.py"), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0 and result.stdout.count("\n") == len(effects) > 0, result.stderr


@pytest.mark.slow
@each_study
def test_a_page_is_what_its_files_say(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "save_figure", lambda *_: None)  # the slowest part
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("trials", ".lock"))
    readme.write_page(copy)
    assert (copy / "README.md").read_text() == (folder / "README.md").read_text()


@pytest.mark.slow
@each_study
def test_games_are_few_bytes_and_agree_with_the_trials(folder):
    data = (folder / "games.csv.xz").read_bytes()
    assert len(data) < 2_000_000
    games = pd.read_csv(io.BytesIO(data), compression="xz", keep_default_na=False)
    trials = pd.DataFrame(read_json(folder / "study.json")["trials"]).query("state == 'complete'")
    part = ["round", "trial"]
    tail = games[games.step == games.groupby(part).step.transform("max")]
    wins = (tail.guesses.str.split().str[-1] == tail.secret).groupby([tail[p] for p in part]).mean()
    curves = trials.set_index(part).curve.map(lambda curve: curve[-1][1])
    assert wins.loc[curves.index].tolist() == pytest.approx(curves.tolist())


def test_the_snippet_of_the_docs_computes_the_difference_that_the_page_shows(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "STUDIES.md").read_text(), re.S)
    exec(compile(code, "STUDIES.md", "exec"), {})
    figures = dict(line.split() for line in capsys.readouterr().out.splitlines()[:-1])
    effect = read_json(ROOT / "sweeps" / "gen_count" / "study.json")["effects"][0]
    assert float(figures["count"]) == effect["seeds"]
    assert float(figures["mean"]) == pytest.approx(effect["difference"], abs=1e-6)


@pytest.mark.slow
def test_the_index_is_what_the_studies_say(tmp_path):
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    readme.write_index(tmp_path / "sweeps")
    assert (tmp_path / "sweeps/README.md").read_text() == (ROOT / "sweeps/README.md").read_text()
