"""Reads a file of JSON lines that a run is still writing, each line once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wordle_rl.runs.untrusted import FolderError, open_regular, parse_json

_LONGEST = 2**20  # bytes of a line; ours stay far below


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A whole line with the number of its step."""

    start: int  # its first byte in the file
    size: int  # bytes
    record: dict[str, Any]


class GrowingLog:
    """A StepLog's file, seen from another process.

    Lines that are no record of a step are skipped. A run that is resumed may cut its files back;
    then everything is read again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0  # up to here everything was read
        self._file: tuple[int, int] | None = None  # device and number of the file

    def read_new(self) -> tuple[bool, list[Line]]:
        """Whether the file began anew, and the lines that were not read before.

        Raises FolderError when the path is no regular file.
        """
        try:
            descriptor = open_regular(self.path)
        except FileNotFoundError:
            again, self._file, self._end = self._end > 0, None, 0
            return again, []
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            identity = (about.st_dev, about.st_ino)
            again = self._file is not None and (identity != self._file or about.st_size < self._end)
            if again:
                self._end = 0
            self._file = identity
            file.seek(self._end)
            lines = []
            for line in iter(lambda: file.readline(_LONGEST), b""):
                if not line.endswith(b"\n") and len(line) < _LONGEST:
                    break  # its end is still to be written
                record = _record_of(line)
                if record is not None:
                    lines.append(Line(start=self._end, size=len(line), record=record))
                self._end += len(line)
            return again, lines

    def read_line(self, start: int, size: int) -> dict[str, Any]:
        """A line again, by its place. Raises FolderError when the file has changed since."""
        try:
            with open(open_regular(self.path), "rb") as file:
                file.seek(start)
                record = _record_of(file.read(size))
        except OSError:
            record = None
        if record is None:
            raise FolderError(f"{self.path.name} has changed: list its games again")
        return record


def _record_of(line: bytes) -> dict[str, Any] | None:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return record if isinstance(step, int) and not isinstance(step, bool) else None


def steps_of(lines: list[Line], names: dict[str, str]) -> Iterator[tuple[str, int, float]]:
    """Name, step and value of some metrics, where a line has them. names: metric -> name."""
    for line in lines:
        for metric, name in names.items():
            value = line.record.get(metric)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield name, line.record["step"], float(value)
