"""Studies without a file in conf/sweep/, the start that a study keeps, and the table at the end."""

from __future__ import annotations

import re

import pytest

from tests.helpers.studies import work
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps import ad_hoc
from wordle_rl.sweeps.ad_hoc import describe_ad_hoc, settle_start
from wordle_rl.sweeps.end_table import format_arms
from wordle_rl.sweeps.reading import read_study
from wordle_rl.sweeps.records import StudyRecord
from wordle_rl.sweeps.results import ReportError, Result
from wordle_rl.sweeps.settings import build_study_settings


def test_the_same_arguments_are_the_same_study_and_others_are_another_one():
    arguments = ["optim.lr=1e-4,1e-3", "model=mini"]
    made = describe_ad_hoc(["optim.lr"], arguments)
    assert re.fullmatch(r"optim\.lr-[0-9a-f]{8}", made["name"])
    assert made["folder"] == f"outputs/studies/{made['name']}"
    assert made == describe_ad_hoc(["optim.lr"], arguments[::-1])
    assert made["name"] != describe_ad_hoc(["optim.lr"], ["optim.lr=1e-4,1e-2"])["name"]
    long = describe_ad_hoc([f"+some.long.setting_{i}" for i in range(20)], arguments)
    build_study_settings(long)  # a name that a study may have


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.setattr(ad_hoc, "ROOT", tmp_path)
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs"


def finished(outputs, name, minute):
    folder = RunFolder(outputs / name)
    folder.path.mkdir()
    folder.write_manifest(seeds={}, digests={}, command=[])
    folder._update_manifest(status="finished", started=f"2026-11-20T10:{minute:02}:00+00:00")


def test_latest_is_one_run_for_all_trials_even_when_the_study_continues(outputs, tmp_path):
    finished(outputs, "old", 1)
    settled = settle_start(["init_from=latest", "seed=1"], tmp_path / "study")
    assert settled == [f"init_from='{outputs / 'old'}'", "seed=1"]
    (tmp_path / "study").mkdir()
    identity = {"overrides": settled}
    StudyRecord(name="s", question="", storage=None, command=[], identity=identity).write(
        tmp_path / "study"
    )
    finished(outputs, "new", 2)
    assert settle_start(["init_from=latest", "seed=1"], tmp_path / "study") == settled
    [start] = settle_start(["init_from=latest"], tmp_path / "another")
    assert start == f"init_from='{outputs / 'new'}'"
    assert settle_start(["init_from=a"], tmp_path / "study") == ["init_from=a"]


def test_without_a_finished_run_the_start_of_a_study_is_refused(outputs, tmp_path):
    with pytest.raises(ConfigError, match=r"init_from=latest: .* has no run that is finished"):
        settle_start(["init_from=latest"], tmp_path / "study")


def test_a_study_ends_with_a_row_for_each_arm_the_best_one_first(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = "\n".join(work(tmp_path)).splitlines()
    title = next(i for i, line in enumerate(said) if line.startswith("arm "))
    assert [line.split()[0] for line in said[title + 1 : title + 4]] == ["x=0.9", "x=0.5", "x=0.1"]
    assert said[title + 1].split() == ["x=0.9", "1", "49.0", "25.0", "4.50", "0.0"]
    assert said[-1].startswith("study study is finished")
    assert max(map(len, said[title : title + 4])) <= 80
    again = "\n".join(work(tmp_path)).splitlines()
    assert said[title] in again, "a finished study shows its table again"
    page = format_arms([r for r in read_study(tmp_path / "study").results if not r.confirms])
    assert page.splitlines() == said[title : title + 4]


def test_a_study_whose_database_is_elsewhere_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py", "-m", "sweep=study"])
    work(tmp_path)
    (tmp_path / "study" / "study.db").unlink()
    with pytest.raises(ReportError, match=r"has neither study\.db nor results\.csv") as raised:
        read_study(tmp_path / "study")
    assert "--storage" in str(raised.value)
    assert str(raised.value).endswith("run the study here: python train.py -m sweep=study")


def test_arms_without_a_result_are_counted(tmp_path):
    figures = {"test_win_rate": None}
    results = [
        Result(number=0, confirms=False, state="failed", params={"x": 1}, value=None,
               figures=figures),
        Result(number=1, confirms=False, state="complete", params={"x": 2}, value=0.5,
               figures=figures),
    ]  # fmt: skip
    _, best, worst = format_arms(results).splitlines()
    assert best.split()[:3] == ["x=2", "1", "50.0"]
    assert worst.split()[:5] == ["x=1", "0", "of", "1", "-"]
