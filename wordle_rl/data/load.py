"""Opens the file of data=, checks each row, and keeps the rows that a run can train on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
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
from wordle_rl.runs.tables import Table, read_table
from wordle_rl.words.lists import WordLists

_NAMED = 3  # bad rows that a line names


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which rows of which file. Without a path, a run plays the secrets of words=."""

    path: str | None = None
    split: str | None = None
    keep_held_out: bool = False

    def __post_init__(self) -> None:
        if self.path is None and (self.split is not None or self.keep_held_out):
            name = "keep_held_out" if self.split is None else "split"
            raise ValueError(f"data.{name} needs data=<file>")


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

    words, rules: states must be playable with them. held_out: the validation and test secrets.
    imitates: whether the algorithm learns given answers, if there are any. cache: folder for the
    mapped copies.
    """
    path = Path(settings.path or "").expanduser()
    table = read_table(path, settings.split, cache)
    answers = _choose_kind(path, table.columns, imitates=imitates)
    held = frozenset(held_out)

    def check(row: dict[str, Any], number: int) -> tuple[str | None, int]:
        if not answers:
            state = read_state(row, words, rules)
            return state.secret, len(state.clues)
        read_dialogue(row, number)
        return read_secret(row), 0

    found = _check_rows(table, check, frozenset() if settings.keep_held_out else held)
    if not found.numbers:
        also = f", {found.left_out} with held-out secrets" if found.left_out else ""
        why = f": {found.named}" if found.bad else ""
        raise FolderError(f"{path}: none of its {len(table)} rows can be trained on{also}{why}")
    known = [secret for secret in found.secrets if secret is not None]
    lines = _describe(found, len(table), kept=sum(secret in held for secret in known))
    given = {"name": path.name, "table": table, "numbers": found.numbers, "secrets": known}
    states = Rows(**given, most=found.most, read=lambda row, _: read_state(row, words, rules))
    return TrainingData(
        name=path.name,
        digest=file_digest(path),
        split=settings.split,
        states=None if answers else states,
        dialogues=Rows(**given, read=read_dialogue) if answers else None,
        secrets=tuple(dict.fromkeys(known)),
        rows=len(found.numbers),
        unknown=len(found.numbers) - len(known),
        lines=tuple(f"{path.name}: {line}" for line in lines),
    )


@dataclass(kw_only=True)
class _Checked:
    """What became of a file's rows."""

    numbers: list[int] = field(default_factory=list)  # of the good rows, counted from 1
    secrets: list[str | None] = field(default_factory=list)  # of the good rows
    most: int = 0  # clues of a good row
    left_out: int = 0  # because of their secrets
    bad: list[str] = field(default_factory=list)  # number and reason of each

    @property
    def named(self) -> str:
        more = len(self.bad) - _NAMED
        return "; ".join(self.bad[:_NAMED]) + (f"; and {more:,} more" if more > 0 else "")


def _check_rows(
    table: Table,
    check: Callable[[dict[str, Any], int], tuple[str | None, int]],
    held_out: Collection[str],
) -> _Checked:
    """Read every row once. check: gives secret and number of clues, or raises BadRow."""
    found = _Checked()
    for number, row in table.rows():
        try:
            if all(cell is None for cell in row.values()):
                raise BadRow("is empty")
            secret, clues = check(row, number)
        except BadRow as error:
            found.bad.append(f"row {number}: {error}")
            continue
        if secret in held_out:
            found.left_out += 1
        else:
            found.numbers.append(number)
            found.secrets.append(secret)
            found.most = max(found.most, clues)
    return found


def _describe(found: _Checked, rows: int, kept: int) -> list[str]:
    """Lines about what happened to the rows. kept: good rows with a held-out secret."""

    def count(number: int, name: str = "row") -> str:
        return f"{number:,} {name}{'s' * (number != 1)}"

    unknown = found.secrets.count(None)
    lines = [f"trains on {len(found.numbers):,} of {rows:,} rows"]
    if found.bad:
        lines.append(f"left out {count(len(found.bad), 'bad row')}: {found.named}")
    if found.left_out:
        lines.append(
            f"left out {count(found.left_out)} with a validation or test secret; "
            "data.keep_held_out=true keeps them"
        )
    if kept:
        lines.append(
            f"kept {count(kept)} with a validation or test secret; wins on these secrets do not "
            "show what the model generalises"
        )
    if unknown:
        lines.append(
            f"{count(unknown)} without a secret; test secrets may be among them, which a column "
            "secret would show"
        )
    return lines


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
