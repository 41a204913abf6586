"""python -m wordle_rl.report, and the page that a training run writes at its end."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.helpers.configs import composed
from tests.helpers.run_folders import Page, make_run
from wordle_rl import report
from wordle_rl.build import resolve
from wordle_rl.report import changed_settings, main
from wordle_rl.runs.config import keep_config
from wordle_rl.runs.folder import RunFolder
from wordle_rl.train import write_page


@pytest.mark.slow
def test_the_page_is_written_into_the_run_folder(tmp_path, capsys):
    run = make_run(tmp_path)
    assert main([str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert Page((run / "report.html").read_text()).text("h1") == ["Run demo"]
    assert main([str(run), "--output", str(tmp_path / "mine.html")]) == 0
    assert (tmp_path / "mine.html").read_text() == (run / "report.html").read_text()


def test_several_runs_are_compared_beside_the_first(tmp_path, capsys):
    runs = [str(make_run(tmp_path, name)) for name in ("a", "b")]
    assert main(runs) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "comparison.html")
    assert "2 runs: a and b" in (tmp_path / "comparison.html").read_text()


def test_latest_is_the_newest_run_in_outputs(tmp_path, monkeypatch):
    outputs = tmp_path / "outputs"
    make_run(outputs, "old")
    new = make_run(outputs, "new", started="2026-11-23T08:56:39+00:00")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    assert main(["latest"]) == 0 and (new / "report.html").is_file()


def test_settings_that_differ_from_the_default_are_found(tmp_path):
    folder = RunFolder(make_run(tmp_path))
    given = ["model=mini", "optim.lr=0.5", f"output_dir={tmp_path}", "words.val=150"]
    keep_config(folder, resolve(composed(*given)))
    found = {key: (default, value) for key, default, value in changed_settings(folder) or []}
    assert found["optim.lr"][1] == "0.5" and found["words.val"] == ("200", "150")
    assert found["model.path"] == ("embedded/tiny", "embedded/mini")
    assert "output_dir" not in found and "seed" not in found
    keep_config(folder, resolve(composed()))
    assert changed_settings(folder) == []
    (folder.path / "config.yaml").write_text("a: [")
    assert changed_settings(folder) is None


WRONG = {
    "no such run folder": ["{}/missing"],
    "not a run folder (no manifest.json)": ["{}"],
    "cannot be written": ["{}/run", "--output", "{}/missing/a.html"],
}


@pytest.mark.parametrize("said", WRONG)
def test_what_cannot_be_read_or_written_is_one_line(tmp_path, capsys, said):
    shutil.copytree(make_run(tmp_path / "made"), tmp_path / "run")
    with pytest.raises(SystemExit, match="2"):
        main([argument.replace("{}", str(tmp_path)) for argument in WRONG[said]])
    error = capsys.readouterr().err
    assert said in error and error.strip().splitlines()[-1].count("error: ") == 1


def test_a_run_whose_page_cannot_be_made_ends_with_a_warning(tmp_path, capsys):
    folder = RunFolder(make_run(tmp_path))
    write_page(folder)
    assert capsys.readouterr().out == f"report: {folder.path / 'report.html'}\n"
    os.remove(folder.path / "manifest.json")
    write_page(folder)
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("warning: no report.html (RunFolderError: ")
    assert told.err.count("\n") == 1
