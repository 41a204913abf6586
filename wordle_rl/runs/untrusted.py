"""Files that somebody else may have written: checked before they are used, and before shown.

A run or model folder may come from anywhere. Its files may be links, pipes, huge, deeply nested or
of other types than ours, and their texts may hold commands for a terminal.
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

_LARGEST = 4_000_000  # bytes of a JSON file that is read at once; ours stay below some 100 kB
_DEEPEST = 50  # lists and objects within each other
_TOLD = 300  # characters that a message about a wrong value may have
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
    """A descriptor of a regular file; never waits, as opening a pipe would.

    Raises FolderError for anything else than a regular file, OSError as os.open does.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FolderError(f"{path}: not a regular file")
    return descriptor


def contents(folder: Path, leave_out: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    """All that lies in a folder and below, as it is: links are not followed.

    leave_out: a folder right inside whose own contents do not matter.
    """
    waiting = [folder]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            about = path.lstat()
            yield path, about
            if stat.S_ISDIR(about.st_mode) and path != folder / leave_out:
                waiting.append(path)


def check_plain(path: Path, about: os.stat_result) -> None:
    """Raise FolderError unless this is a file or a folder itself."""
    if stat.S_ISLNK(about.st_mode):
        raise FolderError(f"{path}: is a link; put a copy in its place")
    if not stat.S_ISDIR(about.st_mode) and not stat.S_ISREG(about.st_mode):
        raise FolderError(f"{path}: neither a file nor a folder")


def read_file(path: Path, most: int = _LARGEST) -> bytes:
    """A whole regular file. Raises FolderError when it is longer than `most` bytes."""
    with open(open_regular(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FolderError(f"{path}: larger than {most:,} bytes, which no file of ours is")
    return data


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
    """Raise FolderError unless the entries that are there are of these annotated types.

    place: the file, or the part of it, for the message.
    """
    for name, kind in kinds.items():
        if name in entries:
            try:
                check_type(f"{place}: {name}", entries[name], kind)
            except ConfigError as error:
                raise FolderError(str(error)[:_TOLD]) from None


def check_all_entries(place: Any, entries: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """The same, and raise FolderError when one is missing."""
    if missing := [name for name in kinds if name not in entries]:
        raise FolderError(f"{place}: {missing[0]} is missing")
    check_entries(place, entries, kinds)


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
    raise ValueError(f"{text[:20]} is no number")
