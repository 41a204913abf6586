"""A run folder as the page sees it: its games, its curves and its newest boards.

Only the files named here are read, and only in the folder that the command line named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wordle_rl.evaluation.turn_facts import TurnJudge, states_of
from wordle_rl.game.rules import Clue
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.listing import KILLED, is_held
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries, printable
from wordle_rl.web.fields import code_of
from wordle_rl.web.growing_log import GrowingLog, Line, steps_of
from wordle_rl.web.shown import NOTES, show_facts
from wordle_rl.words.lists import WORD_LENGTH

# <name>.jsonl, and the secrets of games that do not say theirs.
FILES = {"games": "train", "validation_games": "val", "start_games": "test"}
PAGE = 50  # games of a list
_NEWEST = 4  # boards that are shown while a run trains
_MOST_POINTS = 400  # of a curve
_MOST_TURNS = 200  # of a game; rules allow 100 turns and 100 retries
_LONGEST = 2_000  # characters of an answer
_CURVES = {"train/win_rate": "train", "val/win_rate": "val", "reward/mean": "reward"}
_GAME = {
    "secret": str, "won": bool, "guesses": list[str | None], "feedback": list[str | None],
    "kinds": list[str],
}  # fmt: skip
_LATER = {
    "clues_at_start": list[list[str]], "split": str, "status": str, "reward": dict,
    "texts": list[str], "reasons": list[str | None],
}  # fmt: skip
_WORD = re.compile(f"[a-z]{{{WORD_LENGTH}}}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A game in a list."""

    start: int
    size: int
    step: int
    split: str
    secret: str
    won: bool
    turns: int


class GameList:
    """The games of one file of a run, by number, oldest first."""

    def __init__(self, log: GrowingLog, split: str) -> None:
        """split: of games that do not say theirs."""
        self._log, self._split = log, split
        self._entries: list[Entry] = []

    def refresh(self) -> list[Entry]:
        again, lines = self._log.read_new()
        if again:
            self._entries.clear()
        found = (_entry(line, self._split) for line in lines)
        self._entries += [entry for entry in found if entry is not None]
        return self._entries

    def search(self, page: int, secret: str | None, won: bool | None) -> dict[str, Any]:
        """One page of the games that fit, newest first."""
        found = [
            {
                "number": number, "step": entry.step, "split": entry.split, "won": entry.won,
                "secret": entry.secret, "turns": entry.turns,
            }
            for number, entry in enumerate(self.refresh())
            if secret in (None, entry.secret) and won in (None, entry.won)
        ][::-1]  # fmt: skip
        return {"total": len(found), "page": page, "games": found[page * PAGE : (page + 1) * PAGE]}

    def record(self, number: int) -> dict[str, Any]:
        """The record of a game. Raises FolderError when there is none, or it is damaged."""
        entries = self.refresh()
        if number >= len(entries):
            raise FolderError(f"there is no game {number}: the file has {len(entries)} games")
        entry = entries[number]
        record = self._log.read_line(entry.start, entry.size)
        _check_game(self._log.path.name, record)
        return {"split": self._split, **record}


class RunView:
    """The files of one run."""

    def __init__(self, run: RunFolder, load_judge: Callable[[], TurnJudge]) -> None:
        """load_judge: makes what computes facts on the run's word lists, at the first use."""
        self.run = run
        self._load_judge = load_judge
        self.games = {n: GameList(GrowingLog(run.path / f"{n}.jsonl"), s) for n, s in FILES.items()}
        self._metrics = GrowingLog(run.path / "metrics.jsonl")
        self._curves: dict[str, list[tuple[int, float]]] = {}

    def follow(self) -> dict[str, Any]:
        """How far the run is: status, curves and the newest games. Raises FolderError."""
        again, lines = self._metrics.read_new()
        if again:
            self._curves.clear()
        for name, step, value in steps_of(lines, _CURVES):
            self._curves.setdefault(name, []).append((step, value))
        manifest = self.run.manifest()
        status = manifest.get("status", "unknown")
        games = self.games["games"]
        last = games.refresh()[-_NEWEST:]
        first = len(games.refresh()) - len(last)
        boards = [games.record(first + i) for i in range(len(last))]
        return {
            "name": printable(self.run.path.name),
            "status": KILLED if status == "running" and not is_held(self.run.path) else status,
            "reason": printable(str(manifest.get("status_reason") or "")),
            "step": max((points[-1][0] for points in self._curves.values()), default=0),
            "curves": {name: _thin(points) for name, points in self._curves.items()},
            "boards": [_show_board(record) for record in boards][::-1],
        }

    def explain(self, record: dict[str, Any]) -> dict[str, Any]:
        """A game with the facts of each turn, and its rewards where the run wrote them."""
        clues, guesses = _clues_at_start(record), record["guesses"]
        rows = len(guesses)
        states = states_of(clues, guesses, _codes(record), max(rows + len(clues), 1))
        rewards, texts, reasons = _rewards(record, rows), record.get("texts"), record.get("reasons")
        board = _show_board(record)
        for i, row in enumerate(board["turns"]):
            row["text"] = _at(texts, i)[:_LONGEST]
            row["note"] = _at(reasons, i) or row["note"]
            row["reward"] = rewards[i]
            row["facts"] = show_facts(self._judge.judge(states[i], guesses[i]))
        return board

    @cached_property
    def _judge(self) -> TurnJudge:
        return self._load_judge()


def _entry(line: Line, split: str) -> Entry | None:
    """What a list shows of a game. None for a line that is no game."""
    record = line.record
    try:
        check_all_entries("", record, {"secret": str, "won": bool, "guesses": list})
        check_entries("", record, {"split": str})
    except FolderError:
        return None
    return Entry(
        start=line.start, size=line.size, step=record["step"], won=record["won"],
        split=printable(record.get("split", split))[:20],
        secret=printable(record["secret"])[:WORD_LENGTH], turns=len(record["guesses"]),
    )  # fmt: skip


def _check_game(name: str, record: dict[str, Any]) -> None:
    """Raise FolderError unless a record is a game that can be shown."""
    check_all_entries(name, record, _GAME)
    check_entries(name, record, _LATER)
    lengths = {len(record[part]) for part in ("guesses", "feedback", "kinds")}
    words = [record["secret"], *(guess for guess in record["guesses"] if guess is not None)]
    pairs = record.get("clues_at_start", [])
    if len(lengths) != 1 or lengths.pop() > _MOST_TURNS or not all(map(_WORD.fullmatch, words)):
        raise FolderError(f"{name}: the game on {record['secret'][:5]!r} is damaged")
    given = [marks for marks in record["feedback"] if marks is not None]
    if any(len(pair) != 2 or not _WORD.fullmatch(pair[0]) for pair in pairs):
        raise FolderError(f"{name}: the clues before the game on {words[0]!r} are damaged")
    if any(code_of(marks) is None for marks in [*given, *(pair[1] for pair in pairs)]):
        raise FolderError(f"{name}: the marks of the game on {words[0]!r} are damaged")


def _codes(record: dict[str, Any]) -> list[int | None]:
    return [None if marks is None else code_of(marks) for marks in record["feedback"]]


def _clues_at_start(record: dict[str, Any]) -> list[Clue]:
    pairs = record.get("clues_at_start", [])
    return [Clue(guess, code_of(marks) or 0) for guess, marks in pairs]


def _rewards(record: dict[str, Any], rows: int) -> list[dict[str, float]]:
    """The parts of each turn's reward, empty where the file has none."""
    parts = record.get("reward", {}).get("turns")
    if not isinstance(parts, list) or len(parts) != rows:
        return [{} for _ in range(rows)]
    return [
        {printable(str(name)): float(v) for name, v in turn.items() if isinstance(v, int | float)}
        if isinstance(turn, dict)
        else {}
        for turn in parts
    ]


def _at(texts: list[str | None] | None, place: int) -> str:
    """A text of a list that may be missing or too short."""
    return (texts[place] or "") if texts and place < len(texts) else ""


def _show_board(record: dict[str, Any]) -> dict[str, Any]:
    notes = {str(kind): note for kind, note in NOTES.items()}
    rows = zip(record["guesses"], record["feedback"], record["kinds"], strict=True)
    return {
        "secret": record["secret"],
        "won": record["won"],
        "step": record["step"],
        "split": printable(record["split"])[:20],
        "given": record.get("clues_at_start", []),
        "turns": [
            {"guess": guess, "marks": marks, "note": notes.get(kind, "")}
            for guess, marks, kind in rows
        ],
    }


def _thin(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most so many points, evenly spread, the last one always among them."""
    every = -(-len(points) // _MOST_POINTS) or 1
    return list(points[::-1][::every][::-1])
