"""The games of a page: some boards side by side, and all of them for the page's filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wordle_rl.evaluation.boards import choose_pairs
from wordle_rl.reports.boards import MARKS, Board
from wordle_rl.reports.pairs import pair_boards
from wordle_rl.reports.results import Result
from wordle_rl.runs.untrusted import printable

MOST_GAMES = 2_500  # secrets in the filter; the original lists have 2,315
_MOST_TEXTS = 300  # games whose unreadable answers are kept
_MOST_ROWS = 20  # of a board
_PAIRS = 6  # side by side

Tile = tuple[str, str]  # a letter and its mark: placed, elsewhere, absent or none


def boards_beside(first: Result, second: Result) -> list[dict[str, Any]]:
    """Some secrets that both played: half with another result, by hash order alone."""
    changed, same = choose_pairs(pair_boards(first, second), _PAIRS)
    return [
        {
            "secret": _word(pair[0].secret).upper(),
            "boards": [
                {"title": label, "ending": board.ending, "rows": _rows(board)}
                for label, board in zip((first.label, second.label), pair, strict=True)
            ],
        }
        for pair in [*changed, *same]
    ]


def _rows(board: Board) -> list[dict[str, Any]]:
    shown = []
    for row in board.rows[:_MOST_ROWS]:
        letters = _word(row.letters).upper().ljust(5)
        marks = [MARKS.index(mark) for mark in row.marks] or [None] * 5
        names = ("in place", "elsewhere", "absent")
        told = [f"{letter} {names[m]}" for letter, m in zip(letters, marks, strict=True)
                if m is not None]  # fmt: skip
        shown.append(
            {
                "tiles": [(letter.strip(), "none" if mark is None else f"mark{mark}")
                          for letter, mark in zip(letters, marks, strict=True)],
                "label": ", ".join(told) or letters.strip() or "no guess",
                "note": row.note, "text": printable(row.text),
            }
        )  # fmt: skip
    return shown


def game_data(players: Sequence[Result]) -> dict[str, Any] | None:
    """All games for the page's script. None without any.

    A game is [won, turns, rows]; a row is [letters, marks as digits, note, text].
    """
    with_boards = [player for player in players if player.boards]
    if not with_boards:
        return None
    found: dict[str, list[list[Any] | None]] = {}
    for place, player in enumerate(with_boards):
        for board in player.boards:
            games = found.setdefault(board.secret, [None] * len(with_boards))
            if games[place] is None and len(found) <= MOST_GAMES:
                games[place] = _game(board, texts=len(found) <= _MOST_TEXTS)
    shown = [*found.items()][:MOST_GAMES]
    return {
        "players": [player.label for player in with_boards],
        "games": [[_word(secret), *games] for secret, games in shown],
        "left_out": len(found) - len(shown),
    }


def _game(board: Board, *, texts: bool) -> list[Any]:
    rows = []
    for row in board.rows[:_MOST_ROWS]:
        marks = "".join(str(MARKS.index(mark)) for mark in row.marks)
        cells = [_word(row.letters), marks, row.note, printable(row.text) if texts else ""]
        while not cells[-1]:
            cells.pop()
        rows.append(cells)
    return [int(board.won), len(board.rows), rows]


def _word(text: str) -> str:
    """A word of a game, at most five letters."""
    return printable(text)[:5]
