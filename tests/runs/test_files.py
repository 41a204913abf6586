"""Atomic JSON files and logs of one line per step."""

import pytest

from wordle_rl.runs.files import FolderError, StepLog


def test_every_line_of_a_log_can_be_read_at_once_whatever_a_model_wrote(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    log.sync()
    log.truncate_after(3)
    assert log.read() == [] and not log.path.exists()
    text = "a\ud800b\u2028\x00✓\n"
    for step in range(3):
        log.append(step, {"loss": float("nan") if step == 1 else step / 2, "text": text})
        assert len(StepLog(log.path).read()) == step + 1
    assert [(record["loss"], record["text"]) for record in log.read()] == [
        (0.0, text),
        (None, text),
        (1.0, text),
    ]
    with pytest.raises(ValueError, match="step 3 appended at step 4"):
        log.append(4, {"step": 3})


def test_a_resumed_log_equals_one_that_never_stopped(tmp_path):  # row 22
    whole, resumed = StepLog(tmp_path / "a.jsonl"), StepLog(tmp_path / "b.jsonl")
    for step in range(10):
        for game in range(2):
            whole.append(step, {"game": game})
            if step < 8:
                resumed.append(step, {"game": game})
    resumed.truncate_after(6)
    assert len(resumed.read()) == 14
    resumed.append(7, {"again": True})  # a log that was open goes on
    with open(resumed.path, "ab") as file:
        file.write(b'{"step": 8, "ga')
    again = StepLog(resumed.path)
    again.truncate_after(4)
    assert len(again.read()) == 10
    for step in range(5, 10):
        for game in range(2):
            again.append(step, {"game": game})
    assert resumed.path.read_bytes() == whole.path.read_bytes()


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
        log.truncate_after(99)
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


def test_a_log_is_read_on_from_the_last_whole_line(tmp_path):
    log, end, seen = StepLog(tmp_path / "metrics.jsonl"), 0, []
    assert log.last() is None and log.read_on(0) == ([], 0)
    for step in range(6):
        log.append(step, {"text": "✓" * 9_000 * (step % 2), **({"val": 1} if step == 4 else {})})
        with open(log.path, "ab") as file:
            file.write(b'{"step": 9')
        found, end = log.read_on(end)
        seen += [record["step"] for record in found]
        newest = log.last()
        assert newest is not None and newest["step"] == step
        log.truncate_after(step)
        assert end == log.path.stat().st_size
    assert seen == [*range(6)]
    assert [record["step"] for record in log.read_on(0, key="val")[0]] == [4]


def test_a_line_that_is_torn_in_the_middle_is_an_error_wherever_reading_begins(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    log.append(0, {})
    _, end = log.read_on(0)
    with open(log.path, "ab") as file:
        file.write(b"torn\n")
    log.append(1, {})
    with pytest.raises(FolderError, match=f"line 1 behind byte {end}: not a JSON record"):
        log.read_on(end)
