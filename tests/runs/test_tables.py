"""Tables of rows: what is written is read back, by row number, and broken files end in one line."""

import json
import socket
from pathlib import Path

import pytest

from tests.helpers.rows import write_rows
from wordle_rl.runs.files import FolderError
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.tables import read_table, write_table

ROWS = [{"word": f"w{i}", "list": [{"a": "✓" * (i % 3)}] * (i % 2)} for i in range(20)]


@pytest.fixture
def opened(tmp_path: Path):
    def read(path: Path, split: str | None = None) -> list:
        return read_table(path, split, tmp_path / "cache")[1]

    return read


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rows_are_read_as_they_were_written_and_equal_rows_give_equal_bytes(form, tmp_path, opened):
    path, copy = tmp_path / f"some [rows]*.{form}", tmp_path / f"again.{form}"
    write_table(path, ROWS, form)
    write_table(copy, ROWS, form)
    assert opened(path) == list(enumerate(ROWS, 1))
    assert path.read_bytes() == copy.read_bytes()


def test_a_split_takes_rows_by_count_and_percentage(tmp_path, opened):
    path = write_rows(tmp_path / "rows.jsonl", ROWS)
    for split, numbers in (
        ("train[:3]", [1, 2, 3]),
        ("train[-2:]", [19, 20]),
        ("train[10%:25%]", [3, 4, 5]),
        ("train[:1]+train[18:99]", [1, 19, 20]),
    ):
        assert opened(path, split) == [(n, ROWS[n - 1]) for n in numbers]
    for split in "test[:3]", "train[:3", "train[150%:]", "train[5:5]", "; ls":
        with pytest.raises(ConfigError, match=r"^data\.split must [^\n]*$"):
            opened(path, split)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.txt", b"crane\n", "must end in .jsonl, .json, .parquet, .csv"),
        ("empty.jsonl", b"", "no rows"),
        ("broken.jsonl", b'{"a": 1}\n{"a"\n', "cannot be read as json"),
        ("broken.parquet", b"PAR1 nothing", "cannot be read as parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(name, content, said, tmp_path, opened):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FolderError) as error:
        opened(path)
    message = str(error.value)
    assert message.startswith(f"{path}") and said in message and "\n" not in message


def test_types_that_a_file_claims_are_not_decoded(tmp_path, opened, monkeypatch):
    """A file may say that a cell is an image at an address, which a decoder would open."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cell = {"bytes": None, "path": "https://example.invalid/a.png"}
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    table = pyarrow.table({"image": pyarrow.array([cell], kind)})
    claim = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    path = tmp_path / "rows.parquet"
    parquet.write_table(table.replace_schema_metadata({"huggingface": claim}), path)

    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert opened(path) == [(1, {"image": cell})]
