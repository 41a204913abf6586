"""TensorBoard is opened on links with short names, one for each run."""

from __future__ import annotations

import json
import sys

import pytest

from wordle_rl import curves
from wordle_rl.runs.folder import RunFolder


def make_run(root, name, *words, curves=True, started=None):
    folder = root / name
    folder.mkdir(parents=True)
    RunFolder(folder).write_manifest(
        seeds={}, digests={}, command=["train.py", *words], choices={"model": "mini"}
    )
    path = folder / "manifest.json"
    manifest = {**json.loads(path.read_text()), "started": started or "2026-11-23T14:02:31+00:00"}
    path.write_text(json.dumps(manifest))
    if curves:
        (folder / "tensorboard").mkdir()
        (folder / "tensorboard" / "events").write_text("x")
    return folder


def test_each_run_with_curves_has_a_link_with_its_name(tmp_path):
    make_run(tmp_path / "runs", "a", "optim.lr=1e-4")
    make_run(tmp_path / "runs", "b", "seed=1")
    make_run(tmp_path / "runs", "c", curves=False)
    there = tmp_path / "links"
    there.mkdir()
    assert curves.link_runs([tmp_path / "runs"], there) == 2
    names = {"mini, lr=1e-4, 11-23 14:02", "mini, seed=1, 11-23 14:02"}
    assert {link.name for link in there.iterdir()} == names
    assert all((link / "events").read_text() == "x" for link in there.iterdir())


def test_a_new_run_appears_and_a_deleted_one_goes(tmp_path):
    there = tmp_path / "links"
    there.mkdir()
    first = make_run(tmp_path / "runs", "a", "seed=0")
    curves.link_runs([tmp_path / "runs"], there)
    make_run(tmp_path / "runs", "b", "seed=1")
    first.rename(tmp_path / "gone")
    curves.link_runs([tmp_path / "runs"], there)
    assert [link.name for link in there.iterdir()] == ["mini, seed=1, 11-23 14:02"]


def test_equal_runs_of_one_minute_have_names_of_their_own(tmp_path):
    for i, second in enumerate((1, 2, 2)):
        make_run(tmp_path, f"run-{i:06}", started=f"2026-11-23T14:02:0{second}+00:00")
    names = curves.name_runs(list(curves.find_curves([tmp_path])))
    assert len(names) == 3
    assert "mini, 11-23 14:02:01" in names


def test_a_run_that_cannot_be_read_has_the_name_of_its_folder(tmp_path):
    folder = make_run(tmp_path, "odd")
    (folder / "manifest.json").write_text("no JSON")
    assert curves.name_runs([folder]) == {"odd": folder}


def test_tensorboard_is_started_with_its_own_options(tmp_path, monkeypatch, capsys):
    make_run(tmp_path / "runs", "a")
    seen = []

    class Process:
        def __init__(self, command):
            seen.append(command)

        def wait(self, seconds=None):
            return 3

        def terminate(self):
            seen.append("ended")

    monkeypatch.setattr(curves.subprocess, "Popen", Process)
    assert curves.main([str(tmp_path / "runs"), "--port", "7"]) == 3
    assert capsys.readouterr().out == "1 runs with curves\n"
    [command, ended] = seen
    assert command[:4] == [sys.executable, "-m", "tensorboard.main", "--logdir"]
    assert command[-2:] == ["--port", "7"] and ended == "ended"


def test_a_missing_folder_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        curves.main([str(tmp_path / "missing")])
    assert capsys.readouterr().err.strip().endswith("missing: no such folder")
