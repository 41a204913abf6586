"""The group of a page, and the page of a run that still trains."""

import math
import re

import pytest

from tests.helpers.run_folders import GROUP, make_run
from tests.reports.test_page import page_of
from wordle_rl.commands import train as train_command
from wordle_rl.commands.report import write_page
from wordle_rl.reports.group import describe_probability
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.folder import RunFolder

REFRESH = '<noscript><meta http-equiv="refresh" content="30"></noscript>'


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    monkeypatch.setattr("wordle_rl.reports.page.to_svg", lambda picture: "")


def test_a_group_is_told_turn_by_turn(tmp_path):
    folder = make_run(tmp_path)
    groups = StepLog(folder / "groups.jsonl")
    groups.append(20, {**GROUP, "secret": "mound"})
    groups.append(40, GROUP)
    page = page_of(folder)
    assert "One group of step 40" in page.text("h2")
    prose = page.prose.replace("\u00a0", " ").replace("\u2011", "-")
    assert "The secret is SLEEP. The policy played 1 games on it, drawn at 0.7." in prose
    assert "what it earned by itself" in prose and "all 64 groups of the step" in prose
    assert "Turn 1, where the mean reward is 0.8000" in prose
    first = "1 CRANE x-xx✓ 0.7500 0.7500 -0.500 2 0.0200 0.0300 × 1.50"
    assert f"game guess value reward advantage tokens probability before after change {first}" in (
        prose
    )  # a part that paid nothing has no column
    assert "1 CRANE x-xx✓ no guess 0.7500 0.7500 -0.500 2 0.0200 – –" in prose


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"credit": "game"}, "what its whole game earned"),
        ({"discount": 1.0}, "what it and the later guesses of its game earned, the sum"),
        ({"discount": 0.5}, "each turn later discounted by 0.5"),
        ({"kind": "best_of", "discount": 1.0}, "what it earned by itself"),
        ({"kind": "turn"}, "The policy drew 1 guesses in one state"),
        ({"by_letter": True}, "Letters have advantages of their own"),
        ({"turns_used": 2}, "Turn 3, where the mean reward is 0.8000"),
    ],
)
def test_a_page_says_what_the_reward_of_a_guess_is(changed, told, tmp_path):
    folder = make_run(tmp_path)
    StepLog(folder / "groups.jsonl").append(40, {**GROUP, **changed})
    assert told in page_of(folder).prose


def test_a_probability_is_told_however_small():
    assert describe_probability(math.log(0.5)) == "0.500"
    # 250 tokens of probability 1e-3 each: below the least float.
    assert describe_probability(250 * math.log(1e-3)) == "1.00e-750"
    assert describe_probability(None) == "–"


def test_a_page_is_opened_anew_until_its_run_is_over(tmp_path, capsys, monkeypatch):
    folder = RunFolder(make_run(tmp_path, status="running"))
    end = folder.path / "summary.json"
    end.rename(tmp_path / "later.json")
    (folder.path / "config.yaml").write_text("trainer: {steps: 60}\n")
    page = folder.path / "report.html"
    with folder.lock():
        write_page(folder, trains=True)
        write_page(folder, trains=True)
    html = page.read_text()
    assert REFRESH in html and "location.reload" in html
    assert "after step 40 of 60, and is written again at each validation." in html
    assert "What is missing" not in html
    lines = [line for line in capsys.readouterr().out.splitlines() if "report: " in line]
    assert lines == [f"report: {page}, written at each validation"]
    monkeypatch.setattr(train_command, "write_page", write_page)
    folder.set_status("interrupted")
    train_command._end_page(folder)
    html = page.read_text()
    assert not re.search("refresh|reload", html) and "the run is interrupted" in html
    (tmp_path / "later.json").rename(end)
    folder.set_status("finished")
    write_page(folder)
    assert not re.search("refresh|reload|What is missing", page.read_text())
    assert f"report: {page}\n" in capsys.readouterr().out
