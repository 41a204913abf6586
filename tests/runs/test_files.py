"""Atomic JSON files and logs of one line per step."""

import gzip
import json
import os

import pytest

from wordle_rl.runs import files
from wordle_rl.runs.files import FolderError, StepLog, json_bytes


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
    expected, log = StepLog(tmp_path / "a.jsonl"), StepLog(tmp_path / "b.jsonl")
    for step in range(10):
        for game in range(2):
            expected.append(step, {"game": game})
            if step < 8:
                log.append(step, {"game": game})
    log.truncate_after(6)
    assert len(log.read()) == 14
    log.append(7, {"again": True})  # a log that was open goes on
    with open(log.path, "ab") as file:
        file.write(b'{"step": 8, "ga')
    next_log = StepLog(log.path)
    next_log.truncate_after(4)
    assert len(next_log.read()) == 10
    for step in range(5, 10):
        for game in range(2):
            next_log.append(step, {"game": game})
    assert log.path.read_bytes() == expected.path.read_bytes()


def test_cutting_a_log_at_every_byte_loses_only_the_torn_line(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    for step in range(3):
        log.append(step, {"text": "✓"})
    data = log.path.read_bytes()
    for end in range(len(data) + 1):
        log.path.write_bytes(data[:end])
        count = data[:end].count(b"\n")
        log = StepLog(log.path)  # as the next process opens it
        assert [record["step"] for record in log.read()] == list(range(count))
        log.truncate_after(99)
        log.append(99, {})
        assert [record["step"] for record in log.read()] == [*range(count), 99]


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
        records, end = log.read_on(end)
        seen += [record["step"] for record in records]
        last_record = log.last()
        assert last_record is not None and last_record["step"] == step
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


def test_cutting_back_reads_the_end_alone(tmp_path):
    """A hole of a terabyte stands before the last records: nobody could read it."""
    log = StepLog(tmp_path / "games.jsonl")
    log.append(0, {})
    with open(log.path, "r+b") as file:
        file.truncate(2**40)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    for step in range(1, 9):
        log.append(step, {"text": "✓" * 20_000 * (step % 2)})
    size = len(json_bytes({"step": 1, "text": "✓" * 20_000})) * 3
    size += len(json_bytes({"step": 2, "text": ""})) * 2
    with open(log.path, "ab") as file:
        file.write(b'{"step": 9, "te')
    assert [log.last_step, *(row["step"] for row, _ in zip(log.newest(), "abc", strict=False))] == [
        8,
        8,
        7,
        6,
    ]
    log.truncate_after(5)
    assert (log.last_step, log.path.stat().st_size) == (5, 2**40 + 1 + size)


def test_cutting_at_every_byte_and_after_every_step_keeps_what_a_reader_of_the_whole_keeps(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "_BLOCK", 7)  # so that lines begin and end wherever blocks do
    monkeypatch.setattr(os, "fsync", lambda file: None)  # thousands of them would take a minute
    log = StepLog(tmp_path / "metrics.jsonl")
    for step in (0, 0, 1, 3, 3, 4):
        log.append(step, {"text": "ab"[: step % 3]})
    data = log.path.read_bytes()
    for end in range(len(data) + 1):
        lines = [line for line in data[:end].splitlines(keepends=True) if line.endswith(b"\n")]
        for step in range(-1, 6):
            log.path.write_bytes(data[:end])
            log.truncate_after(step)
            expected = [line for line in lines if json.loads(line)["step"] <= step]
            assert log.path.read_bytes() == b"".join(expected)


def test_a_packed_log_reads_and_is_cut_as_one_that_never_was(tmp_path):
    """Also where a kill left the lines of a new part in the file, too."""
    expected, archive = StepLog(tmp_path / "plain.jsonl"), StepLog(tmp_path / "games.jsonl")
    (tmp_path / "games.old.jsonl.gz").write_bytes(b"somebody's")

    def play(first: int) -> None:
        for step in range(first, 12):
            for log in (expected, archive):
                log.extend(step, [{"game": game, "text": "✓" * 99} for game in range(3)])
            archive.pack(2_000)

    play(0)
    parts = sorted(path.name for path in tmp_path.glob("games.0*.gz"))
    assert len(parts) > 2 and archive.path.stat().st_size <= 2_000
    assert (
        b"".join(gzip.decompress((tmp_path / name).read_bytes()) for name in parts)
        + archive.path.read_bytes()
        == expected.path.read_bytes()
    )
    for killed in (False, True):
        for step in range(12, -2, -1):
            if killed and (packs := sorted(tmp_path.glob("games.0*.gz"))):
                archive.path.write_bytes(gzip.decompress(packs[-1].read_bytes()))
                expected.truncate_after(int(packs[-1].name.split(".")[1]))
                assert archive.read() == expected.read()
            for log in (expected, archive):
                log.truncate_after(step)
            assert archive.read() == expected.read() and archive.last_step == expected.last_step
        play(0)
    [first, *_] = sorted(tmp_path.glob("games.0*.gz"))
    first.write_bytes(first.read_bytes()[:-9])
    for use in (archive.read, lambda: archive.truncate_after(-1)):
        with pytest.raises(FolderError, match=f"{first}: cannot be read"):
            use()
