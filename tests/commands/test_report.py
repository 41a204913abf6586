"""wordle-rl report, and the page that a training run writes at its end."""

import os
import re

import pytest

from tests.helpers.commands import error_of
from tests.helpers.run_folders import make_run
from wordle_rl import __main__ as command
from wordle_rl.commands.report import write_page
from wordle_rl.commands.runs import runs
from wordle_rl.runs import files
from wordle_rl.runs.folder import RunFolder


def report(*arguments: object) -> None:
    command.run(["report", *map(str, arguments)])


def test_the_page_is_written_into_the_run_folder_or_elsewhere(tmp_path, capsys):
    run = make_run(tmp_path)
    report(run)
    assert capsys.readouterr().out.splitlines()[-1] == str(run / "report.html")
    report(run, "--output", tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == (run / "report.html").read_text()


def test_what_cannot_be_read_or_written_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        report(tmp_path / "missing")
    assert "no such run folder" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        report(make_run(tmp_path), "--output", tmp_path / "missing" / "a.html")
    assert "No such file or directory" in error_of(capsys.readouterr().err)


def test_a_run_whose_page_cannot_be_made_ends_with_a_warning(tmp_path, capsys):
    folder = RunFolder(make_run(tmp_path))
    write_page(folder)
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {folder.path / 'report.html'}"
    os.remove(folder.path / "manifest.json")
    write_page(folder)
    output = capsys.readouterr()
    [line] = [line for line in output.err.splitlines() if "warning: " in line]
    assert line.startswith("warning: no report.html (FolderError: ") and output.err.endswith(
        f"{line}\n"
    )


def test_a_list_of_runs_decodes_few_lines_of_each(tmp_path, monkeypatch):
    """All of them take a minute for a folder of long runs."""
    folder, lines = make_run(tmp_path), []
    log, decode = RunFolder(folder).log("metrics"), files._record
    for step in range(41, 500):
        log.append(step, {"loss": 0.5})
    (folder / "start.json").unlink()  # wins come from the validations
    monkeypatch.setattr(files, "_record", lambda line: lines.append(line) or decode(line))
    runs([f"output_dir={tmp_path}"])
    validations = sum(b"val/win_rate" in line for line in log.path.read_bytes().splitlines())
    assert len(lines) == 1 + validations


def test_runs_are_listed_with_their_results_and_two_are_compared(tmp_path, capsys):
    resumes = [{"time": "2026-11-25T10:00:00+00:00", "seconds": 60.0}]  # after a pause
    first, second = (
        make_run(tmp_path),
        make_run(tmp_path, "later", status="running", resumes=resumes),
    )
    for folder, rate in (first, "0.1"), (second, "0.2"):
        text = f"model: {{name: mini, rate: {rate}}}\ntrainer: {{steps: 40, epochs: null}}\n"
        (folder / "config.yaml").write_text(text)
    (second / "summary.json").unlink()
    with RunFolder(second).lock():
        runs([f"output_dir={tmp_path}"])
    runs([f"output_dir={tmp_path}"])
    form = r"^([12]) .*? (\w+) +mini +grpo +40/40 +33.3 -> 100.0( val)? +(\S+)  (\w+)$"
    old, new = ("1", "demo", "", "2.0", "finished"), ("2", "later", " val", "3.0")
    rows = re.findall(form, capsys.readouterr().out, re.M)
    assert rows == [(*new, "running"), old, (*new, "stopped"), old]
    runs(["1", "2", f"output_dir={tmp_path}"])
    assert re.search(r"\nmodel.rate +0.1 +0.2\n$", capsys.readouterr().out)
