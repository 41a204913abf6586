"""Opens the file of data=, checks each row, and keeps the rows that a run can train on."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wordle_rl.data.rows import (
    ANSWERS,
    MESSAGES,
    SECRET,
    BadRow,
    has_answers,
    read_dialogue,
    read_secret,
    read_state,
)
from wordle_rl.game.rules import Rules
from wordle_rl.rollouts.given import GivenDialogue, GivenState
from wordle_rl.runs.files import FolderError, file_digest
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.tables import fetch_table, read_table
from wordle_rl.words.lists import WordLists

_EXAMPLES = 3  # bad rows that a line names
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which rows of which file. Without a path, a run plays the secrets of words=."""

    path: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        if self.path is None and self.split is not None:
            raise ValueError("data.split needs data=<file>")


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What a run trains on instead of planned games. Either states or dialogues are given."""

    name: str  # of the file, without its folder
    digest: str  # hex sha256 of the file
    split: str | None
    states: tuple[GivenState, ...] | None
    dialogues: tuple[GivenDialogue, ...] | None
    secrets: tuple[str, ...]  # each one once, in the order of the rows
    unknown: int  # rows without a secret
    lines: tuple[str, ...]  # what happened to the rows, for the terminal

    @property
    def rows(self) -> int:
        """How many are trained on."""
        return len(self.states or self.dialogues or ())

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
    words: WordLists,
    rules: Rules,
    held_out: Collection[str],
    *,
    imitates: bool,
    cache: Path,
) -> TrainingData:
    """Open the file and check its rows. Raises ConfigError or FolderError in one line.

    words, rules: states must be playable with them. held_out: secrets whose rows are left out.
    imitates: whether the algorithm learns given answers, if there are any. cache: folder for copies
    of files.
    """
    path = Path(settings.path or "").expanduser()
    if not path.suffix and not path.exists() and _HUB_NAME.fullmatch(str(path)):
        path = fetch_table(str(path), cache)
    columns, rows = read_table(path, settings.split, cache)
    answers = imitates and has_answers(columns)
    if not answers and SECRET not in columns:
        raise ConfigError(
            f"data={path}: must have a column secret or, for algorithm=sft, {MESSAGES}, or prompt "
            f"with {'/'.join(ANSWERS)}, not {', '.join(columns)[:200]}"
        )

    def read(row: dict[str, Any], number: int) -> tuple[str | None, Any]:
        if answers:
            return read_secret(row), read_dialogue(row, number)
        state = read_state(row, words, rules)
        return state.secret, state

    contents, secrets, lines = _read_rows(rows, read, held_out)
    if not contents:
        raise FolderError(f"{path}: {'; '.join(lines)}")
    return TrainingData(
        name=path.name,
        digest=file_digest(path),
        split=settings.split,
        states=None if answers else contents,
        dialogues=contents if answers else None,
        secrets=tuple(dict.fromkeys(secrets)),
        unknown=len(contents) - len(secrets),
        lines=tuple(f"{path.name}: {line}" for line in lines),
    )


def _read_rows(
    rows: Sequence[tuple[int, dict[str, Any]]],
    read: Callable[[dict[str, Any], int], tuple[str | None, Any]],
    held_out: Collection[str],
) -> tuple[tuple[Any, ...], list[str], list[str]]:
    """What the good rows hold, their secrets, and lines about what happened to the rows.

    read: gives the secret and the content of a row, or raises BadRow.
    """
    contents: list[Any] = []
    secrets: list[str] = []
    errors: list[str] = []  # number and reason of each
    skips = 0
    for number, row in rows:
        try:
            secret, content = read(row, number)
        except BadRow as error:
            errors.append(f"row {number}: {error}")
            continue
        if secret in held_out:
            skips += 1
            continue
        contents.append(content)
        secrets += [] if secret is None else [secret]
    lines = [f"trains on {len(contents):,} of {len(rows):,} rows"]
    if errors:
        tail = f"; and {len(errors) - _EXAMPLES:,} more" if len(errors) > _EXAMPLES else ""
        lines.append(f"left out {len(errors):,} bad rows: {'; '.join(errors[:_EXAMPLES])}{tail}")
    if skips:
        lines.append(f"left out {skips:,} rows with a validation or test secret")
    if unknown := len(contents) - len(secrets):
        lines.append(f"{unknown:,} rows have no secret; test secrets may be among them")
    return tuple(contents), secrets, lines
