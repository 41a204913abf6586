"""The page of several runs: each against the first on shared secrets, and what differs."""

from __future__ import annotations

import pytest

from tests.helpers.run_folders import BEFORE, Page, make_run
from wordle_rl.reports.comparison_page import comparison_page
from wordle_rl.reports.run import Setting, read_run
from wordle_rl.runs.files import write_json


def page_of(*folders, settings=()):
    given = [*settings, *[[]] * (len(folders) - len(settings))]
    runs = [read_run(folder, own) for folder, own in zip(folders, given, strict=True)]
    return Page(comparison_page(runs))


def test_runs_are_compared_secret_by_secret(tmp_path):
    good, bad = make_run(tmp_path, "good"), make_run(tmp_path, "bad", after=BEFORE)
    page = page_of(good, bad)
    assert page.text("h1") == ["2 runs: good and bad"]
    assert "bad wins 33.3 (6.1 to 79.2) %." in page.prose
    assert "a difference of -66.7 (-132.0 to -1.3) points" in page.prose
    captions = " ".join(page.text("span"))
    assert "Each run against good" in captions and "What the runs took" in captions


def test_settings_that_differ_are_shown_with_the_default_where_a_run_has_it(tmp_path):
    runs = [make_run(tmp_path, name) for name in ("a", "b")]
    same, other = Setting("seed", "0", "5"), Setting("optim.lr", "1e-3", "1e-4")
    page = page_of(*runs, settings=[[same, other], [same]])
    text = page.prose
    assert "optim.lr 1e-4 1e-3" in " ".join(text.split())
    assert "seed" not in page.text("th")


def test_runs_of_one_name_are_told_apart_by_their_settings(tmp_path):
    command = ["train.py", "model=mini", "seed=1"]
    page = page_of(make_run(tmp_path / "a"), make_run(tmp_path / "b", command=command))
    assert page.text("h1") == ["2 runs: demo and demo seed=1"]


@pytest.mark.slow
def test_runs_of_one_name_and_long_settings_are_told_apart_by_their_folders(tmp_path):
    command = ["train.py", f"optim.lr=1e-{'4' * 50}"]
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", command=command)]
    assert page_of(*runs).text("h1")[0].startswith("2 runs: 2026-11-22_08-56-39_demo")


@pytest.mark.slow
def test_runs_of_one_name_and_equal_settings_are_told_apart(tmp_path):
    page = page_of(make_run(tmp_path / "a"), make_run(tmp_path / "b"))
    assert page.text("h1") == [
        "2 runs: 2026-11-22_08-56-39_demo_8606-4bf868 (1) and "
        "2026-11-22_08-56-39_demo_8606-4bf868 (2)"
    ]


@pytest.mark.slow
def test_pictures_have_at_most_five_runs(tmp_path):
    page = page_of(*(make_run(tmp_path, f"run{i}") for i in range(6)))
    titles = page.text("title")
    assert "Games won, part 1 of 2" in titles and "Games won, part 2 of 2" in titles


def test_a_run_without_a_result_is_named_and_the_others_are_shown(tmp_path):
    good, empty = make_run(tmp_path, "good"), tmp_path / "empty"
    empty.mkdir()
    write_json(empty / "manifest.json", {"status": "failed"})
    prose = page_of(good, empty).prose
    assert "good wins 100.0" in prose and "empty: No validation was logged." in prose
    assert "None of these runs has a result yet." in page_of(empty, empty).prose
