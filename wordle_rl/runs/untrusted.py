"""Reads files that somebody else may have written, and checks what they hold.

A run folder, a model folder or a word list may come from anywhere. Its files may be links, pipes,
huge, deeply nested or of other types than ours, and their texts may hold commands for a terminal.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from wordle_rl.runs.instantiate import ConfigError, check_type

_LARGEST = 4_000_000  # bytes of a JSON file; ours stay below some 100 kB
_LARGEST_TEXT = 64 * 2**20  # bytes of a text file
_DEEPEST = 50  # lists and objects within each other
_TOLD = 300  # characters of a message about a wrong value
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_STEERING = re.compile(
    r"[\0-\x08\x0b-\x1f\x7f-\x9f"  # control characters but newline and tab
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # turn the direction of text
    r"\ud800-\udfff]"  # halves of surrogate pairs, which no terminal takes
)


class FolderError(ValueError):
    """What a folder holds cannot be used; the message is one line that names folder or file."""


def printable(text: str) -> str:
    """The text with ? for each character that would steer a terminal."""
    return _STEERING.sub("?", text)


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor; never waits, as opening a pipe would.

    Raises FolderError for anything but a regular file, OSError as os.open does.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        _check_regular(path, os.fstat(descriptor))
    except FolderError:
        os.close(descriptor)
        raise
    return descriptor


def contents(folder: Path, leave_out: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    """Every path in a folder and below, with its lstat: links are not followed.

    leave_out: name of a folder right inside whose contents are skipped.
    """
    waiting = [folder]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            about = path.lstat()
            yield path, about
            if stat.S_ISDIR(about.st_mode) and path != folder / leave_out:
                waiting.append(path)


def check_plain(path: Path, about: os.stat_result) -> None:
    """Raise FolderError unless a path is a file or a folder, and no link to one."""
    if stat.S_ISLNK(about.st_mode):
        raise FolderError(f"{path}: is a link; put a copy in its place")
    if not stat.S_ISDIR(about.st_mode):
        _check_regular(path, about)


def read_file(path: Path, most: int = _LARGEST) -> bytes:
    """A whole regular file, links followed. Raises FolderError for more than `most` bytes."""
    with open(open_regular(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FolderError(f"{path}: larger than {most:,} bytes, the most that is read")
    return data


def read_text(path: Path) -> str:
    """The UTF-8 text of a file that a user names, without a byte order mark.

    Raises FolderError in one line that begins with the path.
    """
    try:
        return read_file(path, _LARGEST_TEXT).decode("utf-8-sig")
    except FileNotFoundError:
        raise FolderError(f"{path}: no such file") from None
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        raise FolderError(f"{path} row {row}: not UTF-8 text") from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object whose numbers are finite. Raises FolderError, and FileNotFoundError."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise FolderError(f"{path}: not a JSON object")
    return value


def read_json(path: Path) -> Any:
    """A JSON value whose numbers are finite. Raises FolderError, and FileNotFoundError."""
    try:
        return parse_json(read_file(path))
    except (FolderError, FileNotFoundError):
        raise
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise FolderError(f"{path}: not JSON ({str(error)[:_TOLD]})") from None


def parse_json(data: bytes) -> Any:
    """JSON as this package writes it. Raises ValueError for NaN, infinities and deep nesting."""
    try:
        value = json.loads(data, parse_constant=_refuse, parse_float=_finite)
        _check_depth(value, _DEEPEST)
    except RecursionError:
        raise ValueError("too deeply nested") from None
    return value


def check_entries(place: Any, entries: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise FolderError unless the entries are of these annotated types; any may be missing.

    place: the file, or the part of it, for the message.
    """
    for name, kind in kinds.items():
        if name in entries:
            try:
                check_type(f"{place}: {name}", entries[name], kind)
            except ConfigError as error:
                raise FolderError(str(error)[:_TOLD]) from None


def check_all_entries(place: Any, entries: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise FolderError unless all these entries exist and are of these annotated types."""
    if missing := [name for name in kinds if name not in entries]:
        raise FolderError(f"{place}: {missing[0]} is missing")
    check_entries(place, entries, kinds)


def _check_regular(path: Path, about: os.stat_result) -> None:
    kind = stat.S_IFMT(about.st_mode)
    if kind != stat.S_IFREG:
        raise FolderError(f"{path}: is {_KINDS.get(kind, 'something else')}, not a file")


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, dict | list):
        return
    if not left:
        raise ValueError("too deeply nested")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, left - 1)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is not a finite number")
