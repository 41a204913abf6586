"""Files that a killed process cannot spoil: JSON replaced as a whole, and logs of a line per step.

What is read has a limit of size and is checked, because it may come from somebody else.
"""

import errno
import gzip
import hashlib
import io
import json
import math
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from wordle_rl.runs.instantiate import ConfigError, check_type

_LARGEST = 64 * 2**20  # bytes of a file that is read as a whole; ours stay below a megabyte
_BLOCK = 2**14  # bytes that are read at once from the end of a log, or more for longer lines
_PART = 2**24  # bytes of a log above which pack() compresses them
_LARGEST_YAML, _DEEPEST = 2**17, 20  # letters and levels of a config


class FolderError(ConfigError):
    """What a folder holds cannot be used; the message is one line that names folder or file."""


# -- reading --------------------------------------------------------------------------------------


def read_text(path: Path, *, pipe: bool = False) -> str:
    """The UTF-8 text of a file up to 64 MiB, or of a pipe. Raises FolderError in one line."""
    if not (pipe or path.is_file()) and path.exists():
        raise FolderError(f"{path}: not a file")
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise FolderError(f"{path}: no such file") from None
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > _LARGEST:
        raise FolderError(f"{path}: larger than {_LARGEST:,} bytes, the most that is read")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise FolderError(f"{path} row {row}: not UTF-8 text") from None


def read_json(path: Path) -> Any:
    """The value of a JSON file. Raises FolderError in one line."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: not JSON ({error})") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises FolderError in one line."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise FolderError(f"{path}: not a JSON object")
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a YAML file up to 128 kB, plain as ours are. Raises FolderError."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C is ten times as fast
    text, depth = read_text(path), 0
    if len(text) > _LARGEST_YAML:
        raise FolderError(f"{path}: larger than {_LARGEST_YAML:,} letters, the most that is read")
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
                raise yaml.YAMLError(f"has an alias (*), or more than {_DEEPEST} levels")
        settings = yaml.load(text, loader) or {}
    except (yaml.YAMLError, ValueError) as error:  # such as a number of 5,000 digits
        raise FolderError(f"{path}: cannot be read as YAML ({error})") from None
    if not isinstance(settings, dict):
        raise FolderError(f"{path}: not YAML of settings")
    return settings


def check_entries(place: Any, entries: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise ConfigError, which names the place, unless entries are of these annotated types."""
    for name, kind in kinds.items():
        if name in entries:
            check_type(f"{place}: {name}", entries[name], kind)


def check_all_entries(place: Any, entries: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """The same, and none of them may be missing."""
    if names := [name for name in kinds if name not in entries]:
        raise FolderError(f"{place}: {names[0]} is missing")
    check_entries(place, entries, kinds)


def file_digest(path: Path) -> str:
    """Hex sha256 of a file, which is not read as a whole."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- writing --------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinities become None, arrays lists; or TypeError."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy, torch and mlx, without importing any of them
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def json_bytes(value: Any, *, indent: int | None = None) -> bytes:
    """An object as UTF-8 JSON with a final newline; plain() says how NaN is written."""
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)
    # Half of a surrogate pair has no UTF-8; JSON wants a backslash and its number instead.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Write an object as indented JSON, atomically."""
    write_bytes(path, json_bytes(value, indent=2))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a whole file: after a crash it holds the old bytes or the new, never a mix."""
    temp = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}.tmp")
    try:
        with open(temp, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def open_lock(path: Path) -> BinaryIO:
    """Open the file of a lock, or make it. Raises FolderError for a link, whose target stays."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise FolderError(f"{path}: must be a file, not a link") from None


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporary_files(folder: Path) -> None:
    """Remove what killed writers left in a folder that nobody else writes to."""
    for file in folder.glob(".*.tmp"):
        file.unlink()


def render_template(file: Path, *, escape: bool = False, **found: Any) -> str:
    """A jinja2 template with what it shows. Callables are its filters. escape: for HTML."""
    import jinja2

    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(file.parent),
        autoescape=escape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    engine.filters |= {name: value for name, value in found.items() if callable(value)}
    return engine.get_template(file.name).render(found)


class StepLog:
    """A file of JSON lines, each with the number of its step; no line is of an earlier step.

    A killed process can tear only the last line. Readers skip it, and truncate_after removes it.
    A log that is packed has earlier lines in parts beside the file, each a gzip file that is named
    after its last step, such as games.000120.jsonl.gz for games.jsonl.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def append(self, step: int, record: Mapping[str, Any]) -> None:
        """Add one line, {"step": step, **record}; the operating system has it on return."""
        self.extend(step, [record])

    def extend(self, step: int, records: Iterable[Mapping[str, Any]]) -> None:
        """Add a line per record."""
        lines = []
        for record in records:
            if record.get("step", step) != step:
                raise ValueError(f"record of step {record['step']} appended at step {step}")
            lines.append(json_bytes({"step": step, **record}))
        # Opened anew each time: an open file would outlive truncate_after elsewhere.
        with open(self.path, "ab") as file:
            file.writelines(lines)

    def read(self) -> list[dict[str, Any]]:
        """All records, oldest first; empty without a file. Raises FolderError, see records()."""
        return [*self.records()]

    def records(self) -> Iterator[dict[str, Any]]:
        """The records one by one, those of parts first.

        Raises FolderError for a line but the last that is no record of a step, and a damaged part.
        """
        for _, part in self._parts():
            with _open_part(part) as file:
                yield from (record for _, record in _read_lines(file, f"{part}"))
        step = self._packed()
        for _, record in self._lines():
            if record["step"] > step:  # or a kill left it in both
                yield record

    def read_on(self, begin: int, *, key: str = "") -> tuple[list[dict[str, Any]], int]:
        """The records behind a byte, and the byte behind the last of them, where to read on.

        Parts are not read. key: leaves out records without it, which are not decoded.
        """
        records, end, needle = [], begin, f'"{key}"'.encode() if key else b""
        for line, record in self._lines(begin, needle):
            if record:
                records.append(record)
            end += len(line)
        return records, end

    def last(self) -> dict[str, Any] | None:
        """The newest record of the file; None without any. Parts are not read."""
        return next(self.newest(), None)

    def newest(self) -> Iterator[dict[str, Any]]:
        """The records of the file, newest first. Reads no more of its end than is asked for."""
        return (record for _, record in self._from_end())

    @property
    def last_step(self) -> int:
        """The step of the newest record; -1 without any."""
        record, step = self.last(), self._packed()
        return step if record is None else max(step, record["step"])

    def pack(self, most: int = _PART) -> None:
        """Move all lines to a compressed part if they have more than `most` bytes.

        Call it between steps: no step is in two parts, or in a part and the file.
        """
        record = self.last()
        if record is not None and self.path.stat().st_size > most:
            part = self.path.with_suffix(f".{record['step']:06d}{self.path.suffix}.gz")
            write_bytes(part, gzip.compress(self.path.read_bytes(), 6, mtime=0))
            os.truncate(self.path, 0)

    def truncate_after(self, step: int) -> None:
        """Drop the records of later steps, and a torn last line. Reads the end alone."""
        for last, part in reversed(self._parts()):
            if last > step:
                with _open_part(part) as file:
                    lines = file.read()
                write_bytes(self.path, lines)
                part.unlink()
        if self.path.exists():
            ends = ((end, one["step"]) for end, one in self._from_end() if one["step"] <= step)
            end, newest = next(ends, (0, -1))
            os.truncate(self.path, end if newest > self._packed() else 0)
            self.sync()

    def sync(self) -> None:
        """Flush the file to disk, so that it is never behind a checkpoint written next."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())

    def _parts(self) -> list[tuple[int, Path]]:
        """The last steps of the parts, ascending, with their files."""
        paths = self.path.parent.glob(f"{self.path.stem}.*{self.path.suffix}.gz")
        steps = (
            (path.name.removeprefix(f"{self.path.stem}.").split(".")[0], path) for path in paths
        )
        return sorted((int(step), path) for step, path in steps if step.isdecimal())

    def _packed(self) -> int:
        """The last step of the parts; -1 without any."""
        return max((step for step, _ in self._parts()), default=-1)

    def _lines(self, begin: int = 0, needle: bytes = b"") -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Lines of the file with their records. begin: byte of the first. For needle see below."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                file.seek(begin)
                behind = f" behind byte {begin}" if begin else ""
                yield from _read_lines(file, f"{self.path}", behind, needle)

    def _from_end(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Records of the file, newest first, each with the byte behind its line."""
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            begin = size = end = file.seek(0, os.SEEK_END)
            rest = b""  # the end of a line whose begin has not been read
            while begin:
                length = min(max(_BLOCK, len(rest)), begin)
                begin = file.seek(begin - length)
                lines = io.BytesIO(file.read(length) + rest).readlines()
                rest = lines.pop(0) if begin else b""
                for line in reversed(lines):
                    record = _record(line)
                    if record is not None:
                        yield end, record
                    elif end < size:  # a torn line is forgiven when nothing follows
                        raise FolderError(
                            f"{self.path} line behind byte {end - len(line)}: not a JSON record of "
                            "a step"
                        )
                    end -= len(line)


@contextmanager
def _open_part(path: Path) -> Iterator[gzip.GzipFile]:
    """A part of a log to read from. Raises FolderError when it is damaged."""
    try:
        with gzip.open(path) as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise FolderError(f"{path}: cannot be read ({error})") from None


def _read_lines(
    file: BinaryIO | gzip.GzipFile, name: str, behind: str = "", needle: bytes = b""
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Lines with their records; needle: {} for lines without it. Raises FolderError.

    name, behind: what an error calls the file, and where its first line begins.
    """
    for number, line in enumerate(file, 1):
        record = _record(line) if needle in line else {}
        if record is not None:
            yield line, record
        elif file.read(1):  # a torn line is forgiven when nothing follows
            raise FolderError(f"{name} line {number}{behind}: not a JSON record of a step")


def _record(line: bytes) -> dict[str, Any] | None:
    """The record in a line, or None when the line is torn."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    step = record.get("step") if isinstance(record, dict) else None
    whole = isinstance(step, int) and not isinstance(step, bool)
    return record if whole else None
