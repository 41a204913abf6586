"""Pictures of a run's wins."""

import json
import subprocess
import sys

import numpy as np
import pytest

from wordle_rl.plot_wins import draw_run, main, read_curves, smoothed_rate
from wordle_rl.runs.folder import StepLog
from wordle_rl.runs.paths import ROOT

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "tiny")


def make_run(folder, validation=True):
    folder.mkdir(parents=True)
    log = StepLog(folder / "metrics.jsonl")
    for step in range(1, 41):
        train = {"train/win_rate": step / 80, "train/games": 8, "train/wins": step / 10}
        val = {"val/win_rate": step / 60} if validation and step % 10 == 0 else {}
        log.append(step, {**train, **val, "loss": 0.1})
    return folder


def test_curves_hold_the_wins_of_each_step_and_the_validations(run):
    curves = read_curves(run)
    assert curves.steps.tolist() == list(range(1, 41))
    assert np.cumsum(curves.wins)[-1] == pytest.approx(sum(range(1, 41)) / 10)
    assert curves.val_steps.tolist() == [10, 20, 30, 40]
    assert curves.val_rates.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2, 2 / 3])


def test_wins_come_from_the_rate_where_they_are_not_counted(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    log.append(1, {"train/win_rate": 0.25, "train/games": 8})
    log.append(2, {"train/win_rate": None, "train/games": 0, "val/win_rate": None})
    log.append(3, {"train/win_rate": 0.5, "train/games": 8, "val/win_rate": 0.0})
    curves = read_curves(tmp_path)
    assert (curves.wins.tolist(), curves.steps.tolist()) == ([2.0, 4.0], [1.0, 3.0])
    assert curves.val_rates.tolist() == [0.0]


def test_smoothing_pools_the_games_of_the_last_steps():
    random = np.random.default_rng(0)
    games = random.integers(1, 9, 30).astype(float)
    wins = np.floor(games * random.random(30))
    for window in (1, 4, 100):
        slow = [
            sum(wins[max(0, i - window + 1) : i + 1]) / sum(games[max(0, i - window + 1) : i + 1])
            for i in range(30)
        ]
        assert smoothed_rate(wins, games, window) == pytest.approx(slow)
    with pytest.raises(ValueError, match="window"):
        smoothed_rate(wins, games, 0)


def test_one_run_gives_a_picture_in_its_folder(run, capsys):
    assert main([str(run)]) == 0
    assert (run / "wins.png").read_bytes().startswith(PNG)
    assert capsys.readouterr().out.strip() == str(run / "wins.png")


def test_a_run_that_is_still_writing_can_be_drawn(run, tmp_path):
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 41, "train/w')
    assert main([str(run), "--out", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_a_run_with_validations_only_can_be_drawn(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 0, "val/win_rate": 0.5}) + "\n")
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize("runs", [2, 12])
def test_several_runs_share_a_picture_beside_them(tmp_path, runs):
    folders = [make_run(tmp_path / str(i) / "same-name") for i in range(runs)]
    assert main([str(folder) for folder in folders]) == 0
    assert (tmp_path / "0" / "wins.png").read_bytes().startswith(PNG)


def test_errors_are_one_line_with_exit_code_2(tmp_path, run, capsys):
    (tmp_path / "empty").mkdir()
    spoilt = make_run(tmp_path / "spoilt")
    (spoilt / "metrics.jsonl").write_text('oops\n{"step": 1}\n')
    bare = make_run(tmp_path / "bare", validation=False)
    cases = {
        "no such run folder": [tmp_path / "missing"],
        "no metrics": [tmp_path / "empty"],
        "line 1": [spoilt],
        "no val/win_rate": [bare, bare],
        "cannot be written": [run, "--out", tmp_path / "missing" / "a.png"],
    }
    for expected, arguments in cases.items():
        with pytest.raises(SystemExit, match="2"):
            main([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert expected in error and error.count("\n") == 1


def test_without_matplotlib_the_error_says_what_to_install(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="2"):
        main([str(run)])
    told = "a picture needs matplotlib, which is not installed: pip install"
    assert told in capsys.readouterr().err


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, wordle_rl.plot_wins; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_watched_secrets_are_read_apart_from_validation(tmp_path):
    records = [
        {"step": 0, "val/win_rate": 0.5, "watch/train/win_rate": 0.6, "watch/test/win_rate": 0.4},
        {"step": 5, "train/games": 8, "train/wins": 4},
        {"step": 10, "watch/train/win_rate": 0.9, "watch/test/win_rate": 0.45},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    curves = read_curves(tmp_path)
    assert curves.watched["train"].tolist() == [[0, 10], [0.6, 0.9]]
    assert curves.watched["test"].tolist() == [[0, 10], [0.4, 0.45]]
    draw_run(curves, tmp_path / "wins.png")
    assert (tmp_path / "wins.png").stat().st_size > 10_000
