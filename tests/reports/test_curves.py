"""The picture of a file of metrics, ours or one of another program."""

import json
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.helpers.run_folders import make_run
from wordle_rl import __main__ as command
from wordle_rl.reports.curves import draw_file
from wordle_rl.runs.files import FolderError


def write_log(path: Path, *rows: object, end: str = "") -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + end)
    return path


def test_report_draws_the_curves_of_a_runs_metrics(tmp_path, capsys):
    folder = make_run(tmp_path)
    command.run(["report", str(folder / "metrics.jsonl")])
    picture, text = capsys.readouterr().out.splitlines()
    assert picture == str(folder / "metrics.png") and " curves" in text
    assert imread(picture).shape[0] > 300
    out = tmp_path / "wins.png"
    options = ["--only", "val/win_rate", "--only", "val/mean*", "--output", str(out)]
    command.run(["report", str(folder / "metrics.jsonl"), *options])
    assert capsys.readouterr().out.splitlines() == [str(out), "2 of 2 curves"]
    with pytest.raises(SystemExit):
        command.run(["report", str(folder), "--only", "loss"])
    assert "--only is for a file of metrics" in capsys.readouterr().err


def test_another_programs_file_is_drawn_whatever_its_rows_are_called(tmp_path):
    rows = [{"global_step": n, "train": {"loss": 1 / n, "flat": 3}, "note": "x"} for n in (1, 2, 3)]
    path = write_log(tmp_path / "log.jsonl", *rows, {"global_step": 3, "eval": 0.5}, end='{"glob')
    assert draw_file(path) == (tmp_path / "log.png", "1 of 1 curves"), "train.loss alone moves"
    assert draw_file(path, ["train.*"])[1] == "2 of 2 curves"
    log = write_log(tmp_path / "many.jsonl", *({f"m{i}": n for i in range(30)} for n in (1, 2)))
    assert draw_file(log)[1].startswith("24 of 30 curves; --only '<name>*' draws others, such as")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("step,loss\n1,2\n2,1\n", "line 1: not a JSON object"),
        ('{"step": 1, "loss": 2}\n', "none of its metrics has two numbers that differ"),
        ("", "none of its metrics has two numbers that differ"),
    ],
)
def test_a_file_without_curves_is_one_line(tmp_path, text, told):
    path = tmp_path / "metrics.jsonl"
    path.write_text(text)
    with pytest.raises(FolderError, match=told) as error:
        draw_file(path)
    assert str(path) in str(error.value)
