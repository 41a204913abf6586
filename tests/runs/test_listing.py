"""Which runs a folder has, how they stand, and which one `latest` means."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from wordle_rl.commands.runs import describe_age, runs
from wordle_rl.runs.files import RunFolderError, write_json
from wordle_rl.runs.folder import UNFINISHED, RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.listing import find_run, list_runs


def make_run(root: Path, name: str, minute: int, status: str = "finished") -> RunFolder:
    folder = RunFolder.create(root, name)
    folder.write_manifest(
        seeds={}, digests={}, command=[], choices={"model": "tiny", "reward": "phase2"}
    )
    manifest = json.loads((folder.path / "manifest.json").read_text())
    started = datetime(2026, 1, 1, 12, minute, tzinfo=UTC).isoformat()
    write_json(folder.path / "manifest.json", {**manifest, "started": started, "status": status})
    return folder


@pytest.fixture
def outputs(tmp_path):
    """Three runs, the newest first in the alphabet, and a folder that is no run."""
    root = tmp_path / "outputs"
    make_run(root, "old", 1)
    make_run(root, "stopped", 2, "interrupted")
    make_run(root, "a_new", 3)
    (root / "eval").mkdir()
    return root


def found(outputs, *statuses):
    return list_name(find_run("latest", "run", outputs, outputs, *statuses))


def list_name(folder):
    return folder.path.name.split("_", 2)[2].rpartition("_")[0]


def test_a_run_that_began_with_anothers_model_names_that_run(outputs):
    first = make_run(outputs, "first", 8)
    path = make_run(outputs, "second", 9).path / "manifest.json"
    start = {"run": str(first.path), "checkpoint": "best", "step": 3}
    write_json(path, {**json.loads(path.read_text()), "init_from": start})
    assert [state.model for state in list_runs(outputs)[:2]] == ["of first", "tiny"]


def test_the_latest_run_is_the_newest_of_its_kind(outputs):
    assert found(outputs) == "a_new"
    assert found(outputs, "finished") == "a_new"
    assert found(outputs, *UNFINISHED) == "stopped"


def test_a_run_without_a_readable_manifest_is_never_the_latest(outputs):
    for text in "{", "[]", '{"status": "finished", "started": "soon"}', '{"status": 3}':
        broken = make_run(outputs, "broken", 9).path / "manifest.json"
        broken.write_text(text)
    assert found(outputs) == "a_new"


def test_where_no_run_is_the_latest_the_setting_and_the_folder_are_named(outputs, tmp_path):
    with pytest.raises(ConfigError, match=r"init_from=latest: .*outputs has no run that is failed"):
        find_run("latest", "init_from", tmp_path, outputs, "failed")
    with pytest.raises(ConfigError, match=r"run=latest: .*nowhere has no run$"):
        find_run("latest", "run", tmp_path, tmp_path / "nowhere")


def test_another_name_is_a_folder(outputs):
    [old] = outputs.glob("*_old_*")
    assert find_run(old.name, "run", outputs, outputs).path == old
    with pytest.raises(RunFolderError, match="no such run folder"):
        find_run("other", "run", outputs, outputs)


def test_a_list_says_how_each_run_stands(outputs):
    run = make_run(outputs, "training", 5, "running")
    for step, rate in (0, 0.25), (10, 0.5), (20, None):
        run.metrics_log().append(step, {} if rate is None else {"val/win_rate": rate})
    write_json(run.path / "summary.json", {"win_rate": 0.75})
    (make_run(outputs, "broken", 6).path / "manifest.json").write_text("{")
    with run.lock():
        states = list_runs(outputs)
    assert [state.name for state in states] == ["training", "a_new", "stopped", "old", "broken"]
    first = states[0]
    assert (first.status, first.model, first.reward) == ("running", "tiny", "phase2")
    assert (first.steps, first.validation_wins, first.test_wins) == (20, 0.5, 0.75)
    assert [state.status for state in states[1:]] == [
        "finished", "interrupted", "finished", "unreadable",
    ]  # fmt: skip
    assert list_runs(outputs)[0].status == "killed", "without a process"


def test_the_command_prints_a_line_for_each_run(outputs, capsys):
    run = make_run(outputs, "measured", 7)
    run.metrics_log().append(30, {"val/win_rate": 0.314})
    runs(outputs)
    title, newest, *others = capsys.readouterr().out.splitlines()
    assert " ".join(title.split()) == "run model reward steps val % test % status age"
    assert newest.split()[1:7] == ["tiny", "phase2", "30", "31.4", "-", "finished"]
    assert len(others) == 3


def test_a_folder_without_runs_says_so(tmp_path, capsys):
    runs(tmp_path)
    assert capsys.readouterr().out == f"{tmp_path}: no runs yet\n"
    with pytest.raises(ConfigError, match="missing: no such folder"):
        runs(tmp_path / "missing")


@pytest.mark.parametrize(
    ("seconds", "said"), [(-3, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (200_000, "2 d")]
)
def test_an_age_is_told_in_its_largest_unit(seconds, said):
    assert describe_age(timedelta(seconds=seconds)) == said
