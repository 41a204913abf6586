"""Games of a run as boards, read from its JSON lines, which somebody else may have written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wordle_rl.runs.files import StepLog
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries
from wordle_rl.words.lists import WORD_LENGTH

MARKS = ("✓", "-", "x")
_NOTES = {
    "not_a_word": "not a word",
    "breaks_hard_mode": "ignores a clue",
    "unparsable": "no guess",
}
_GAME = {
    "secret": str, "won": bool, "guesses": list[str | None], "feedback": list[str | None],
    "kinds": list[str],
}  # fmt: skip
_MORE = {"clues_at_start": list[list[str]], "texts": list[str]}
_NAMED = 10  # secrets that a message names
_LONGEST = 120  # characters that are kept of an answer without a guess


class Row(NamedTuple):
    """One turn."""

    letters: str  # of the guess, "" without one
    marks: str  # "" for a rejected guess
    note: str
    text: str = ""  # the beginning of an answer without a guess


@dataclass(frozen=True, kw_only=True)
class Board:
    """One game as it is shown."""

    step: int  # training steps that the player had seen
    secret: str
    won: bool
    rows: tuple[Row, ...]
    given: int = 0  # how many of the rows the game began with

    @property
    def ending(self) -> str:
        return f"won in {len(self.rows)}" if self.won else "lost"


def read_games(path: Path, split: str | None = None) -> Iterator[Board]:
    """The games in a file, oldest first; none without the file.

    split: train, val or test, or None for all. Raises FolderError for a line that is no game.
    """
    for record in StepLog(path).records():
        if split is None or record.get("split") == split:
            yield _board(path, record)


def read_boards(folder: Path) -> list[Board]:
    """The validation games that a run wrote, oldest first.

    Raises FolderError for a missing folder, for one without such games, and for a line that is no
    game.
    """
    if not folder.is_dir():
        raise FolderError(f"{folder}: no such run folder")
    some = folder / "games.jsonl"
    all_games = [*read_games(folder / "validation_games.jsonl")]
    games = [*read_games(some, "val")]
    if not all_games and not games:
        raise FolderError(f"{some}: no validation games yet")
    if all_games and not (games and games[-1].step > all_games[-1].step):
        return all_games
    return games


def _board(path: Path, record: dict[str, Any]) -> Board:
    place = f"{path}: step {record['step']}"
    check_all_entries(place, record, _GAME)
    check_entries(place, record, _MORE)
    turns = [record["guesses"], record["feedback"], record["kinds"]]
    if len({len(values) for values in turns}) != 1:
        raise FolderError(f"{place}: guesses, feedback and kinds must have the same length")
    clues = record.get("clues_at_start", [])
    if any(len(clue) != 2 for clue in clues):
        raise FolderError(f"{place}: clues_at_start must have a guess and its marks each")
    texts = record.get("texts", [])
    rows = [Row(guess, marks, "given") for guess, marks in clues]
    for i, (guess, marks, kind) in enumerate(zip(*turns, strict=True)):
        text = texts[i][:_LONGEST] if guess is None and i < len(texts) else ""
        rows.append(Row(guess or "", marks or "", _NOTES.get(kind, ""), text))
    if any(len(row.marks) not in (0, WORD_LENGTH) or set(row.marks) - set(MARKS) for row in rows):
        raise FolderError(f"{place}: feedback must be {WORD_LENGTH} of ✓ - x for each guess")
    return Board(
        step=record["step"], secret=record["secret"], won=record["won"], rows=tuple(rows),
        given=len(clues),
    )  # fmt: skip


def before_and_after(boards: Sequence[Board], secret: str | None = None) -> tuple[Board, Board]:
    """The first and the last game of one secret.

    secret: None chooses the first one that was lost before and won after, else the first one that
    was won after, else the first of all.
    Raises FolderError when no secret was played twice.
    """
    games: dict[str, list[Board]] = {}
    for board in boards:
        games.setdefault(board.secret, []).append(board)
    pairs = {name: (found[0], found[-1]) for name, found in games.items() if len(found) > 1}
    if not pairs:
        raise FolderError("no secret has games of two validations yet")
    if secret is not None:
        if secret not in pairs:
            more = f" or {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
            known = ", ".join([*pairs][:_NAMED])
            raise FolderError(f"--secret must be one of {known}{more}, not {secret}")
        return pairs[secret]
    won = [pair for pair in pairs.values() if pair[1].won]
    improved = [pair for pair in won if not pair[0].won]
    return next(iter([*improved, *won, *pairs.values()]))
