"""Opens the file of data=, checks each row, and keeps the rows that a run can train on."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wordle_rl.data.rows import (
    ANSWERS,
    MESSAGES,
    SECRETS,
    BadRow,
    has_answers,
    read_dialogue,
    read_secret,
    read_state,
)
from wordle_rl.game.rules import Rules
from wordle_rl.rollouts.given import GivenDialogue, GivenState, Rows
from wordle_rl.runs.files import FolderError, file_digest
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.tables import Table, fetch_table, read_table
from wordle_rl.words.lists import WordLists

_NAMED = 3  # bad rows that a line names
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
    states: Rows[GivenState] | None
    dialogues: Rows[GivenDialogue] | None
    secrets: tuple[str, ...]  # each one once, in the order of the rows
    rows: int  # how many are trained on
    unknown: int  # rows without a secret
    lines: tuple[str, ...]  # what happened to the rows, for the terminal

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
    imitates: whether the algorithm learns given answers, if there are any. cache: folder for the
    mapped copies.
    """
    path = Path(settings.path or "").expanduser()
    if not path.suffix and not path.exists() and _HUB_NAME.fullmatch(str(path)):
        path = fetch_table(str(path), cache)
    table = read_table(path, settings.split, cache)
    answers = imitates and has_answers(table.columns)
    if not answers and not any(name in table.columns for name in SECRETS):
        raise ConfigError(
            f"data={path}: must have a column secret or, for algorithm=sft, {MESSAGES}, or prompt "
            f"with {'/'.join(ANSWERS)}, not {', '.join(table.columns)[:200]}"
        )

    def read(row: dict[str, Any], number: int) -> tuple[str | None, int]:
        """The secret of a row, and how many clues it has. Raises BadRow."""
        if answers:
            read_dialogue(row, number)
            return read_secret(row), 0
        state = read_state(row, words, rules)
        return state.secret, len(state.clues)

    numbers, secrets, most, lines = _check_rows(table, read, held_out)
    if not numbers:
        raise FolderError(f"{path}: {'; '.join(lines)}")
    given = {"name": path.name, "table": table, "numbers": numbers, "secrets": secrets}
    states = Rows(**given, most=most, read=lambda row, _: read_state(row, words, rules))
    return TrainingData(
        name=path.name,
        digest=file_digest(path),
        split=settings.split,
        states=None if answers else states,
        dialogues=Rows(**given, read=read_dialogue) if answers else None,
        secrets=tuple(dict.fromkeys(secrets)),
        rows=len(numbers),
        unknown=len(numbers) - len(secrets),
        lines=tuple(f"{path.name}: {line}" for line in lines),
    )


def _check_rows(
    table: Table,
    read: Callable[[dict[str, Any], int], tuple[str | None, int]],
    held_out: Collection[str],
) -> tuple[list[int], list[str], int, list[str]]:
    """Read every row once.

    Returns the numbers of the good rows, their secrets, the most clues that one of them has, and
    lines about what happened to the rows.
    """
    numbers: list[int] = []
    secrets: list[str] = []
    bad: list[str] = []  # number and reason of each
    most = left_out = 0
    for number, row in table.rows():
        try:
            secret, clues = read(row, number)
        except BadRow as error:
            bad.append(f"row {number}: {error}")
            continue
        if secret in held_out:
            left_out += 1
            continue
        numbers.append(number)
        secrets += [] if secret is None else [secret]
        most = max(most, clues)
    lines = [f"trains on {len(numbers):,} of {len(table):,} rows"]
    if bad:
        more = f"; and {len(bad) - _NAMED:,} more" if len(bad) > _NAMED else ""
        lines.append(f"left out {len(bad):,} bad rows: {'; '.join(bad[:_NAMED])}{more}")
    if left_out:
        lines.append(f"left out {left_out:,} rows with a validation or test secret")
    if unknown := len(numbers) - len(secrets):
        lines.append(f"{unknown:,} rows have no secret; test secrets may be among them")
    return numbers, secrets, most, lines
