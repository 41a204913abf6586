"""Atomic JSON files and logs of one line per step."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from wordle_rl.runs import files as json_files
from wordle_rl.runs.files import FolderError, StepLog, write_json


def test_json_holds_no_nan_and_takes_numpy(tmp_path):
    value = {
        "nan": math.nan,
        "inf": -np.float32(np.inf),
        "numbers": np.arange(3),
        "one": np.int64(1),
        "path": Path("a"),
        2: (True, None),
    }
    write_json(tmp_path / "a.json", value)
    expected = {
        "nan": None,
        "inf": None,
        "numbers": [0, 1, 2],
        "one": 1,
        "path": "a",
        "2": [True, None],
    }
    assert json.loads((tmp_path / "a.json").read_text()) == expected


def test_any_text_of_a_model_can_be_written(tmp_path):
    text = "a\ud800b\u2028\x00✓\n"
    log = StepLog(tmp_path / "games.jsonl")
    log.append(1, {"text": text})
    assert log.read() == [{"step": 1, "text": text}]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "summary.json"
    write_json(path, {"wins": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json_files.os, broken, full)
    with pytest.raises(OSError, match="No space"):
        write_json(path, {"wins": 2})
    assert json.loads(path.read_text()) == {"wins": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_what_json_cannot_hold_is_refused_before_the_file_is_touched(tmp_path):
    with pytest.raises(TypeError, match="object"):
        write_json(tmp_path / "a.json", {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_every_line_of_a_log_can_be_read_at_once(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    for step in range(3):
        log.append(step, {"loss": float("nan") if step == 1 else step / 2})
        assert len(StepLog(log.path).read()) == step + 1
    assert [record["loss"] for record in log.read()] == [0.0, None, 1.0]


def test_a_record_of_another_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="step 3 appended at step 4"):
        StepLog(tmp_path / "metrics.jsonl").append(4, {"step": 3})


def test_a_resumed_log_equals_one_that_never_stopped(tmp_path):  # row 22
    whole, resumed = StepLog(tmp_path / "a.jsonl"), StepLog(tmp_path / "b.jsonl")
    for step in range(10):
        for game in range(2):
            whole.append(step, {"game": game})
            if step < 8:
                resumed.append(step, {"game": game})
    with open(resumed.path, "ab") as file:
        file.write(b'{"step": 8, "ga')
    again = StepLog(resumed.path)
    assert again.truncate_after(4) == 6
    for step in range(5, 10):
        for game in range(2):
            again.append(step, {"game": game})
    assert resumed.path.read_bytes() == whole.path.read_bytes()


def test_a_log_that_was_open_goes_on_after_being_cut_back(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        log.append(step, {})
    log.truncate_after(1)
    log.append(2, {"again": True})
    assert log.read() == [{"step": 1}, {"step": 2, "again": True}]


def test_cutting_a_log_at_every_byte_loses_only_the_torn_line(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    for step in range(3):
        log.append(step, {"text": "✓"})
    data = log.path.read_bytes()
    for end in range(len(data) + 1):
        log.path.write_bytes(data[:end])
        whole = data[:end].count(b"\n")
        log = StepLog(log.path)  # as the next process opens it
        assert [record["step"] for record in log.read()] == list(range(whole))
        log.append(99, {})
        assert [record["step"] for record in log.read()] == [*range(whole), 99]


@pytest.mark.parametrize("tail", [b"\x00\x00\x00\n", b"null\n", b"{}\n", b'{"step": "1"}\n'])
def test_a_spoilt_last_line_is_forgotten_and_an_earlier_one_is_an_error(tmp_path, tail):
    log = StepLog(tmp_path / "metrics.jsonl")
    log.append(1, {})
    with open(log.path, "ab") as file:
        file.write(tail)
    assert log.read() == [{"step": 1}]
    with open(log.path, "ab") as file:
        file.write(b'{"step": 2}\n')
    with pytest.raises(FolderError, match="line 2"):
        log.read()


def test_a_log_that_does_not_exist_is_empty(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    log.sync()
    assert log.read() == [] and log.truncate_after(3) == 0
    assert not log.path.exists()
