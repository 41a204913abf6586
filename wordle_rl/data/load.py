"""Opens the file of data=, checks each row, and keeps the rows that a run can train on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wordle_rl.data.cells import BadRow
from wordle_rl.data.dialogues import ANSWERS, MESSAGES, TableDialogues, has_answers, read_dialogue
from wordle_rl.data.settings import DataSettings
from wordle_rl.data.states import SECRETS, StateReader, TableStates, read_secret
from wordle_rl.runs.files import FolderError
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.tables import Table, file_digest, read_table

_NAMED = 3  # bad rows that a line names


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What a run trains on instead of planned games. Either states or dialogues are given."""

    name: str  # of the file, without its folder
    digest: str  # hex sha256 of the file
    split: str | None
    states: TableStates | None
    dialogues: TableDialogues | None
    secrets: tuple[str, ...]  # each one once, in the order of the rows
    unknown: int  # rows without a secret
    lines: tuple[str, ...]  # what happened to the rows, for the terminal

    @property
    def rows(self) -> int:
        """How many rows are trained on."""
        rows = self.dialogues if self.states is None else self.states
        assert rows is not None
        return len(rows)

    def record(self) -> dict[str, Any]:
        """The entry `data` of a model's lineage."""
        return {
            "file": self.name,
            "sha256": self.digest,
            **({} if self.split is None else {"split": self.split}),
            "rows": self.rows,
            "unknown_rows": self.unknown,
            "secrets": " ".join(sorted(self.secrets)),
        }


def load_data(
    settings: DataSettings,
    reader: StateReader,
    held_out: Collection[str],
    *,
    imitates: bool,
    cache: Path,
) -> TrainingData:
    """Open the file and check its rows. Raises ConfigError or FolderError in one line.

    held_out: the validation and test secrets. imitates: whether the algorithm learns given answers,
    if there are any. cache: folder for the mapped copies.
    """
    assert settings.path is not None
    path = Path(settings.path).expanduser()
    table = read_table(path, settings.split, cache)
    answers = _choose_kind(path, table.columns, imitates=imitates)

    def check(number: int, row: dict[str, Any]) -> tuple[str | None, int]:
        if not answers:
            state = reader.read(row)
            return state.secret, len(state.clues)
        read_dialogue(row, number)
        return read_secret(row), 0

    held = frozenset(held_out)
    checked = _check_rows(table, check, frozenset() if settings.keep_held_out else held)
    if not checked.numbers:
        left_out = f", {checked.left_out} with held-out secrets" if checked.left_out else ""
        raise FolderError(
            f"{path}: none of its {len(table)} rows can be trained on{left_out}"
            + (f": {checked.name_bad_rows()}" if checked.bad else "")
        )
    numbers = np.array(checked.numbers, np.int64)
    known = [secret for secret in checked.secrets if secret is not None]
    return TrainingData(
        name=path.name,
        digest=file_digest(path),
        split=settings.split,
        states=None if answers else TableStates(table, reader, numbers, known, checked.most),
        dialogues=TableDialogues(path.name, table, numbers) if answers else None,
        secrets=tuple(dict.fromkeys(known)),
        unknown=len(numbers) - len(known),
        lines=tuple(_describe(path.name, table, checked, sum(s in held for s in known))),
    )


def _choose_kind(path: Path, columns: Collection[str], *, imitates: bool) -> bool:
    """Whether the dialogues of a file are learnt. Otherwise its states are played."""
    if imitates and has_answers(columns):
        return True
    if any(name in columns for name in SECRETS):
        return False
    if has_answers(columns):
        raise ConfigError(
            f"data={path}: has answers but no column secret to play games with: use algorithm=sft"
        )
    raise ConfigError(
        f"data={path}: must have a column secret, {MESSAGES}, or prompt with {'/'.join(ANSWERS)}, "
        f"not {', '.join(columns)[:200]}"
    )


@dataclass(kw_only=True)
class _Checked:
    """What became of a file's rows."""

    numbers: list[int] = field(default_factory=list)  # of the good rows, counted from 1
    secrets: list[str | None] = field(default_factory=list)  # of the good rows
    most: int = 0  # clues of a good row
    left_out: int = 0  # because of their secrets
    bad: int = 0
    reasons: list[str] = field(default_factory=list)  # of the first bad rows

    def name_bad_rows(self) -> str:
        more = self.bad - len(self.reasons)
        return "; ".join(self.reasons) + (f"; and {more:,} more" if more else "")


def _check_rows(
    table: Table,
    check: Callable[[int, dict[str, Any]], tuple[str | None, int]],
    held_out: Collection[str],
) -> _Checked:
    """Read every row once. check: gives secret and number of clues, or raises BadRow."""
    found = _Checked()
    for number, row in table.rows():
        try:
            if all(cell is None for cell in row.values()):
                raise BadRow("is empty")
            secret, clues = check(number, row)
        except BadRow as error:
            found.bad += 1
            if len(found.reasons) < _NAMED:
                found.reasons.append(f"row {number}: {error}")
            continue
        if secret in held_out:
            found.left_out += 1
        else:
            found.numbers.append(number)
            found.secrets.append(secret)
            found.most = max(found.most, clues)
    return found


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'s' * (number != 1)}"


def _describe(name: str, table: Table, checked: _Checked, kept: int) -> list[str]:
    unknown = sum(secret is None for secret in checked.secrets)
    lines = [f"{name}: trains on {len(checked.numbers):,} of {len(table):,} rows"]
    if checked.bad:
        rows = _count(checked.bad, "bad row")
        lines.append(f"{name}: left out {rows}: {checked.name_bad_rows()}")
    if checked.left_out:
        lines.append(
            f"{name}: left out {_count(checked.left_out, 'row')} with a validation or test secret; "
            "data.keep_held_out=true keeps them"
        )
    if kept:
        lines.append(
            f"{name}: kept {_count(kept, 'row')} with a validation or test secret; wins on these "
            "secrets do not show what the model generalises"
        )
    if unknown:
        lines.append(
            f"{name}: {_count(unknown, 'row')} without a secret; test secrets may be among them, "
            "which a column secret would show"
        )
    return lines
