"""Tables of rows in JSON Lines, Parquet and CSV files.

Nothing in a file is decoded, fetched or run, whatever types it claims.
"""

import glob
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import FolderError, json_bytes, write_bytes
from wordle_rl.runs.instantiate import ConfigError

KINDS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}  # by extension
FORMATS = ("jsonl", "parquet")  # that are written
_LIMIT = 200  # characters of a library's message

Row = dict[str, Any]


def read_table(
    path: Path, split: str | None, cache: Path
) -> tuple[list[str], list[tuple[int, Row]]]:
    """The columns of a file, and its rows with their numbers in the file, counted from 1.

    split: a slice in the grammar of `datasets`, such as train[10%:]; None takes all rows. cache:
    folder for the library's copies. Raises ConfigError or FolderError in one line.
    """
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise FolderError(f"{path}: must end in {', '.join(KINDS)}")
    if not path.is_file():
        raise FolderError(f"{path}: no such file")
    data: Any = _load(path, kind, cache) if path.stat().st_size else ()
    if not len(data):
        raise FolderError(f"{path}: no rows")
    ranges = _ranges(split or "train", len(data))
    table = data.with_format("arrow")  # skips the decoders, which may open addresses
    rows = [
        row
        for part in ranges
        for row in enumerate(table[part.start : part.stop].to_pylist(), part.start + 1)
    ]
    return data.column_names, rows


def fetch_table(name: str, cache: Path) -> Path:
    """The training rows of a dataset on the hub, as a file that is fetched once. Runs no code."""
    file = cache / f"{name.replace('/', '--')}.parquet"
    if not file.is_file():
        import datasets

        try:
            rows: Any = datasets.load_dataset(name, split="train")
        except (OSError, ValueError) as error:  # datasets' own errors are some of these
            code = f"datasets.load_dataset('{name}', split='train').to_parquet('rows.parquet')"
            raise FolderError(
                f"data={name}: no such file, and the hub did not give it ({str(error)[:_LIMIT]}); "
                f"where it does, {code} writes a file for data=rows.parquet"
            ) from None
        write_table(file, rows.with_format("arrow")[:].to_pylist(), "parquet")
    return file


def _load(path: Path, kind: str, cache: Path) -> Any:
    import datasets
    from datasets.exceptions import DatasetsError

    read = getattr(datasets.Dataset, f"from_{kind}")
    verbosity = datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        return read(glob.escape(str(path.resolve())), cache_dir=str(cache))  # it reads a pattern
    except (DatasetsError, ValueError, OSError) as error:
        reason = _reason(error)
        if reason.endswith("corresponds to no data!"):
            return ()
        raise FolderError(f"{path}: cannot be read as {kind} ({reason})") from None
    finally:
        datasets.logging.set_verbosity(verbosity)


def _reason(error: BaseException) -> str:
    """What the first of a chain of errors said, in one line."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return (" ".join(str(error).split()) or type(error).__name__)[:_LIMIT]


def _ranges(split: str, rows: int) -> list[range]:
    """The rows of a split, counted from 0."""
    import datasets

    try:
        parts = datasets.ReadInstruction.from_spec(split).to_absolute({"train": rows})
    except ValueError as error:
        raise ConfigError(
            "data.split must be slices such as train[:100], train[10%:20%] or "
            f"train[:5]+train[-5:], not {split!r}: {_reason(error)}"
        ) from None
    ranges = [range(part.from_, part.to) for part in parts if part.from_ < part.to]
    if not ranges:
        raise ConfigError(f"data.split must keep some of the {rows} rows, not {split!r}")
    return ranges


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], form: str) -> None:
    """Write rows with the same columns as jsonl or parquet, atomically.

    Equal rows give equal bytes, for Parquet with the same version of pyarrow.
    """
    if form == "parquet":
        import pyarrow.parquet

        buffer = io.BytesIO()
        table = pyarrow.Table.from_pylist([dict(row) for row in rows])
        pyarrow.parquet.write_table(table, buffer, compression="zstd")
        data = buffer.getvalue()
    else:
        data = b"".join(map(json_bytes, rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
