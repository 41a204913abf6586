"""Damaged files of a study: one line names each, and no run is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.studies import plan_of, states, steps_done, stored, work
from wordle_rl import study
from wordle_rl.runs.errors import user_errors
from wordle_rl.sweeps.reading import read_study
from wordle_rl.sweeps.study_loop import run_study

NODE = {"params": {"x": "choice(0.1, 0.9)"}}
ABOUT = {"name": "study", "question": "", "storage": None, "command": [], "identity": {}}

# the content of a damaged study.json, and the message about it
DAMAGED = {
    "half of it": ('{"name": "stu', "not JSON"),
    "empty": ("", "not JSON"),
    "no JSON": ("name: study", "not JSON"),
    "not text": ("\udcff", "not JSON"),
    "a list": (json.dumps([ABOUT]), "not a JSON object"),
    "no name": (json.dumps({k: v for k, v in ABOUT.items() if k != "name"}), "name is missing"),
    "no identity": (json.dumps({**ABOUT, "identity": None}), "identity must be names with values"),
    "a number as storage": (json.dumps({**ABOUT, "storage": 5}), "storage must be text or null"),
    "a text as command": (json.dumps({**ABOUT, "command": "x"}), "command must be a list of text"),
    "a list of numbers": (json.dumps({**ABOUT, "command": [1]}), "command must be a list of text"),
    "a list as default": (
        json.dumps({**ABOUT, "identity": {"default": [1]}}), "default must be names with values",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    work(root, **NODE)
    return root


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def damage(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


def refused(capsys: pytest.CaptureFixture[str], root: Path, **node: object) -> str:
    """The line with which python train.py -m ... ends. Checks that its exit code is 2."""
    with pytest.raises(SystemExit) as stop, user_errors():
        run_study(plan_of(root, **{**NODE, **node}), lambda _: None)
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_study_json_is_named_by_both_commands(kind, root, capsys):
    text, said = DAMAGED[kind]
    path = root / "study" / "study.json"
    damage(path, text)
    with pytest.raises(SystemExit) as stop:
        study.main([str(path.parent)])
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    for printed in (line, refused(capsys, root)):
        assert printed.startswith(f"error: {path}: ")
        assert said in printed and "remove it" in printed
    path.unlink()  # as the line says
    work(root, **NODE)
    assert json.loads(path.read_text())["name"] == "study"
    assert states(stored(root)) == ["COMPLETE"] * 2


@pytest.mark.parametrize(
    "text", ["", '[["x=', "{}", "[]", "[1]", '[["x=0.1", 2]]', "null"],
    ids=["empty", "half", "object", "no stage", "number", "wrong override", "null"],
)  # fmt: skip
def test_a_damaged_trial_json_is_named_and_its_run_continues_once_it_is_mended(text, root, capsys):
    path = root / "trials" / "0000" / "trial.json"
    whole = path.read_bytes()
    damage(path, text)
    (root / "study" / "study.db").unlink()  # so that its trials start again
    for _ in range(2):  # the same command says the same
        line = refused(capsys, root)
        assert line.startswith(f"error: {path}: ") and f"remove {path.parent}" in line
    path.write_bytes(whole)
    said = work(root, **NODE)
    assert any("resumes in" in line for line in said) and "x=0.9" in said[-1]
    assert steps_done(root) == {"0000": [1, 2, 3, 4], "0001": [1, 2, 3, 4]}


def test_a_trial_whose_damaged_folder_was_removed_starts_again(root, capsys):
    path = root / "trials" / "0001" / "trial.json"
    damage(path, "")
    (root / "study" / "study.db").unlink()
    assert f"remove {path.parent}" in refused(capsys, root)
    shutil.rmtree(path.parent)
    assert "x=0.9" in work(root, **NODE)[-1]
    assert len(steps_done(root)) == 2


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        pytest.param("summary.json", "", "not JSON", marks=pytest.mark.slow),
        ("summary.json", '{"val_win_rate": 0.', "not JSON"),
        pytest.param("summary.json", "[1]", "not a JSON object", marks=pytest.mark.slow),
        pytest.param(
            "summary.json",
            '{"val_win_rate": true}',
            "val_win_rate must be a number",
            marks=pytest.mark.slow,
        ),
        ("summary.json", '{"val_win_rate": 0.5, "win_rate": "a"}', "win_rate must be a number"),
        ("metrics.jsonl", "", "no training step"),
        ("metrics.jsonl", '{"step": 1}\n{"st\n{"step": 3}\n', "line 2"),
        ("metrics.jsonl", '{"step": 1, "time/step": "a"}\n', "time/step must be a number"),
        pytest.param(
            "metrics.jsonl",
            '{"step": 1, "val/win_rate": []}\n',
            "val/win_rate must be a number",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_trial_with_a_damaged_file_counts_as_failed_and_names_it(
    name, text, cause, tmp_path, monkeypatch
):
    monkeypatch.setenv("FAKE", json.dumps({"steps": 1, "spoil": [name, text]}))
    said = work(tmp_path, params={"x": "choice(0.1)"})
    [line] = [line for line in said if "failed" in line and "to go" in line]
    assert f"/{name}" in line and cause in line
    assert states(stored(tmp_path)) == ["FAIL"] and "1 failed" in said[-1]
    assert [r.state for r in read_study(tmp_path / "study").results] == ["failed"]
