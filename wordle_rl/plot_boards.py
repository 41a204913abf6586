"""Games before and after training, as a PNG: python -m wordle_rl.plot_boards outputs/<run>.

Reads validation_games.jsonl, or games.jsonl, which has a few games of each validation, where the
first one is missing or was full before the end. By default it shows the first secret that was lost
before training and won after it, or else the first secret. So the picture is an example and no
measurement; win rates are in the run's reports. Needs matplotlib.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordle_rl.pictures import PlotError, one_line_errors, plain_text, run_name
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.figures import GREY, INK, new_figure, save_figure, write_caption
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.untrusted import check_all_entries, check_entries, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"✓": "#6aaa64", "-": "#c9b458", "x": "#5f6366", "": "#ffffff"}  # mark -> tile
_LETTER_COLOURS = {"✓": INK, "-": INK, "x": "#ffffff", "": INK}
_SIGNS = {"✓": "✓", "-": "–"}  # in a tile's corner, for those who cannot tell its colour
_CAPTION = "✓ in its place, – elsewhere in the word. One example, not a measurement."
_NOTES = {
    "not_a_word": "not a word",
    "breaks_hard_mode": "ignores a clue",
    "unparsable": "no guess",
}
_GAME = {
    "secret": str, "won": bool, "guesses": list[str | None], "feedback": list[str | None],
    "kinds": list[str],
}  # fmt: skip
_LETTERS = 5
_NAMED = 10  # secrets that a message names
_MOST_ROWS = 20  # of a board; rules may allow more guesses than a picture can show


@dataclass(frozen=True, kw_only=True)
class Board:
    """One game as it is drawn."""

    step: int  # training steps that the player had seen
    secret: str
    won: bool
    rows: tuple[tuple[str, str, str], ...]  # letters, marks ("" for a rejected guess), note


def read_boards(folder: Path) -> list[Board]:
    """The validation games that a run wrote, oldest first.

    Raises PlotError for a missing folder and for one without such games, FolderError for a line
    that is no game.
    """
    if not folder.is_dir():
        raise PlotError(f"{folder}: no such run folder")
    every, some = folder / "validation_games.jsonl", folder / "games.jsonl"
    all_games = StepLog(every).read()
    games = [record for record in StepLog(some).read() if record.get("split") == "val"]
    if not all_games and not games:
        raise PlotError(f"{some}: no validation games yet")
    if all_games and not (games and games[-1]["step"] > all_games[-1]["step"]):
        return [_board(every, record) for record in all_games]
    return [_board(some, record) for record in games]


def _board(path: Path, record: dict[str, Any]) -> Board:
    place = f"{path}: step {record['step']}"
    check_all_entries(place, record, _GAME)
    check_entries(place, record, {"clues_at_start": list[list[str]]})
    turns = [record["guesses"], record["feedback"], record["kinds"]]
    if len({len(values) for values in turns}) != 1:
        raise PlotError(f"{place}: guesses, feedback and kinds must have the same length")
    rows = [
        (guess or "", marks or "", _NOTES.get(kind, ""))
        for guess, marks, kind in zip(*turns, strict=True)
    ]
    if any(len(marks) not in (0, _LETTERS) or set(marks) - set(_COLOURS) for _, marks, _ in rows):
        raise PlotError(f"{place}: feedback must be {_LETTERS} of ✓ - x for each guess")
    return Board(step=record["step"], secret=record["secret"], won=record["won"], rows=tuple(rows))


def before_and_after(boards: Sequence[Board], secret: str | None = None) -> tuple[Board, Board]:
    """The first and the last game of one secret.

    secret: None chooses the first one that was lost before and won after, else the first one that
    was won after, else the first of all.
    Raises PlotError when no secret was played twice.
    """
    games: dict[str, list[Board]] = {}
    for board in boards:
        games.setdefault(board.secret, []).append(board)
    pairs = {name: (found[0], found[-1]) for name, found in games.items() if len(found) > 1}
    if not pairs:
        raise PlotError("no secret has games of two validations yet")
    if secret is not None:
        if secret not in pairs:
            more = f" or {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
            known = ", ".join([*pairs][:_NAMED])
            raise PlotError(f"--secret must be one of {known}{more}, not {secret}")
        return pairs[secret]
    won = [pair for pair in pairs.values() if pair[1].won]
    improved = [pair for pair in won if not pair[0].won]
    return next(iter([*improved, *won, *pairs.values()]))


def draw_boards(boards: Sequence[Board], out: Path, title: str) -> None:
    """Write boards side by side as a PNG."""
    rows = max(len(board.rows[:_MOST_ROWS]) for board in boards)
    figure = new_figure(3.4 * len(boards), 1.2 + 0.47 * max(rows, 1))
    figure.suptitle(title, fontsize=11, fontweight="bold", color=INK)
    write_caption(figure, _CAPTION)
    for axes, board in zip(figure.subplots(1, len(boards), squeeze=False)[0], boards, strict=True):
        _draw_board(axes, board, rows)
    save_figure(figure, out)


def _draw_board(axes: Axes, board: Board, rows: int) -> None:
    from matplotlib.patches import Rectangle

    for row, (letters, marks, note) in enumerate(board.rows[:_MOST_ROWS]):
        for column in range(_LETTERS):
            colour = _COLOURS[marks[column : column + 1]]
            edge = "#d3d6da" if not marks else colour
            axes.add_patch(Rectangle((column, row), 0.92, 0.92, facecolor=colour, edgecolor=edge))
        for column, letter in enumerate(letters[:_LETTERS].upper()):
            mark = marks[column : column + 1]
            axes.text(
                column + 0.46, row + 0.48, plain_text(letter), ha="center", va="center",
                fontsize=13, fontweight="bold", color=_LETTER_COLOURS[mark],
            )  # fmt: skip
            if mark in _SIGNS:
                corner = {"ha": "right", "va": "bottom", "fontsize": 6.5, "color": INK}
                axes.text(column + 0.88, row + 0.9, _SIGNS[mark], **corner)
        axes.text(_LETTERS + 0.15, row + 0.48, note, va="center", fontsize=9, color=GREY)
    after = "before training" if board.step == 0 else f"after {board.step} steps"
    end = f"won in {len(board.rows)}" if board.won else "lost"
    axes.set_title(f"{plain_text(board.secret.upper())} {after}: {end}", fontsize=10)
    axes.set_xlim(-0.1, _LETTERS + 1.9)
    axes.set_ylim(rows, -0.1)  # the first guess on top
    axes.set_aspect("equal")
    axes.axis("off")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m wordle_rl.plot_boards",
        description="Draw validation games before and after training as a PNG.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    parser.add_argument(
        "--secret", nargs="+", metavar="WORD",
        help="which games; default: one that improved",
    )  # fmt: skip
    parser.add_argument("--title", help="default: what it shows, and the run")
    parser.add_argument("--out", type=Path, metavar="PNG", help="default <RUN>/boards.png")
    options = parser.parse_args(arguments)
    out = options.out or options.run / "boards.png"
    with one_line_errors(out):
        games = read_boards(options.run)
        pairs = [before_and_after(games, secret) for secret in options.secret or [None]]
        usual = f"Validation games before and after training: {run_name(options.run)}"
        title = plain_text(options.title or "") or usual
        draw_boards([board for pair in pairs for board in pair], out, title)
    print(printable(str(out)))
    return 0


if __name__ == "__main__":
    run_plain(main)
