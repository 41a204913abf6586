"""Word lists and other files that cannot be read end in one line that names them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.commands import evaluation, training


def latin(path: Path) -> None:
    path.write_bytes("crane\nélans\n".encode("latin-1"))


def large(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)  # takes no room on the disk


def many(path: Path) -> None:
    words = itertools.islice(itertools.product("abcdefgh", repeat=5), 32_000)
    path.write_text("\n".join(map("".join, words)))


FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a folder": ("a.txt", Path.mkdir, "cannot be read (Is a directory)"),
    "a file of 2 GB": ("a.txt", lambda p: large(p, 2**31), "larger than 67,108,864 bytes"),
    "a binary file": ("a.txt", lambda p: p.write_bytes(bytes(range(256))), "row "),
    "not UTF-8": ("a.txt", latin, "row 2: not UTF-8"),
    "an empty file": ("a.txt", Path.touch, "no words in it"),
    "a long word": ("a.txt", lambda p: p.write_text("crane\nslates\n"), "row 2: 'slates' has 6"),
    "a word twice": ("a.txt", lambda p: p.write_text("crane\nCrane\n"), "rows 1 and 2"),
    "no such column": ("a.csv", lambda p: p.write_text("w,n\ncrane,1\n"), "one of w, n"),
    "no CSV": ("a.csv", lambda p: p.write_text('word\n"cra'), "row 2: not CSV"),
    "too many words": (
        "a.txt",
        many,
        "32,000 possible secrets and 32,000 allowed words are too many",
    ),
    "too few words": ("a.txt", lambda p: p.write_text("crane\nslate\n"), "leave a secret"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_word_list_that_cannot_be_used_is_named(kind: str, tmp_path: Path, refused) -> None:
    name, make, told = FILES[kind]
    make(tmp_path / name)
    column = "words.column=word" if name == "a.csv" else ""
    line = refused(training(f"words=custom words.answers={tmp_path / name} {column}"))
    named = f"words.answers={tmp_path / name}"
    assert told in line and (kind.startswith("too ") or named in line)


@pytest.mark.parametrize("kind", ["a folder", "a file of 2 GB"])
@pytest.mark.parametrize("setting", ["trainer.tree", "tree", "player=tree tree", "words.allowed"])
def test_so_is_every_other_file_that_is_read(
    setting: str, kind: str, tmp_path: Path, refused
) -> None:
    name, make, told = FILES[kind]
    make(tmp_path / name)
    (tmp_path / "b.txt").write_text("crane\n")
    command = training if setting.startswith("trainer") else evaluation
    beside = f"words.answers={tmp_path / 'b.txt'}" if setting == "words.allowed" else ""
    line = refused(command(f"{setting}={tmp_path / name} {beside}"))
    assert f"{setting.split()[-1]}={tmp_path / name}: " in line and told in line
