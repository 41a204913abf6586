"""python -m wordle_rl.report, and the page that a training run writes at its end."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.helpers.configs import composed
from tests.helpers.run_folders import Page, make_run
from tests.helpers.studies import work
from wordle_rl import report
from wordle_rl.build import resolve
from wordle_rl.report import changed_settings, main
from wordle_rl.runs.config import keep_config
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import ROOT
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
    "has no study.json": ["--study", "{}"],
    "give run folders, or --study": [],
}


@pytest.mark.parametrize("said", WRONG)
def test_what_cannot_be_read_or_written_is_one_line(tmp_path, capsys, said):
    shutil.copytree(make_run(tmp_path / "made"), tmp_path / "run")
    with pytest.raises(SystemExit, match="2"):
        main([argument.replace("{}", str(tmp_path)) for argument in WRONG[said]])
    error = capsys.readouterr().err
    assert said in error and error.strip().splitlines()[-1].count("error: ") == 1


@pytest.mark.slow
def test_a_study_that_ran_elsewhere_has_a_page_of_its_table(tmp_path, capsys):
    study = tmp_path / "gen_count"
    shutil.copytree(ROOT / "sweeps" / "gen_count", study, ignore=shutil.ignore_patterns("*.db*"))
    assert main(["--study", str(study)]) == 0
    page = Page((study / "report.html").read_text())
    assert page.text("h1") == ["Study gen_count"]
    assert "trials: 36 complete" in page.prose
    # The same figures as on the study's own page.
    assert "arm=8 6 5120 90.6 ± 1.5 default" in page.prose
    assert "arm=2 6 5120 90.1 ± 1.8 -0.6 ± 2.9" in page.prose
    assert "./README.md" in [link["href"] for link in page.of("a")]
    # Eight arms need two pictures, and a screen reader names each table.
    names = [part["aria-label"] for part in page.of("div") if "aria-label" in part]
    assert sum("Curves, numbers" in name for name in names) == 2 and len({*names}) == len(names)
    assert len(page.text("span")) > 3 and "error" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_that_ran_here_has_curves_and_its_confirmation(tmp_path):
    work(
        tmp_path, params={"x": "choice(0.1, 0.9)", "seed": "choice(0, 1)"},
        question="Is x <good>?", confirm_seeds=[7], default={"x": 0.1},
    )  # fmt: skip
    [study] = [path.parent for path in tmp_path.rglob("study.json")]
    assert main(["--study", str(study)]) == 0
    page = Page((study / "report.html").read_text())
    headings = ["Result", "Effects", "With fresh seeds", "Curves", "Importance", "Trials"]
    headings += ["Lineage"]
    assert page.text("h2") == headings
    assert "Is x <good>?" in page.prose and "Best on validation secrets: x=0.9." in page.prose
    assert page.text("title").count("Validation games won") == 2  # dots and curves
    assert "What is missing" not in page.prose


def test_a_table_of_a_study_without_numbers_is_one_line(tmp_path, capsys):
    study = tmp_path / "gen_count"
    shutil.copytree(ROOT / "sweeps" / "gen_count", study, ignore=shutil.ignore_patterns("*.db*"))
    for text, said in (("a,b\n1,2\n", "not a table of trials"), (
        "trial,round,state,seed,arm,val_win_rate,run\nx,search,complete,0,2,high,r\n",
        "trial 'x' has no",
    )):  # fmt: skip
        (study / "results.csv").write_text(text)
        with pytest.raises(SystemExit, match="2"):
            main(["--study", str(study)])
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_a_run_whose_page_cannot_be_made_ends_with_a_warning(tmp_path, capsys):
    folder = RunFolder(make_run(tmp_path))
    write_page(folder)
    assert capsys.readouterr().out == f"report: {folder.path / 'report.html'}\n"
    os.remove(folder.path / "manifest.json")
    write_page(folder)
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("warning: no report.html (RunFolderError: ")
    assert told.err.count("\n") == 1
