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

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wordle_rl.pictures import one_line_errors, plain_text, run_name
from wordle_rl.reports.boards import Board, before_and_after, read_boards
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.figures import GREY, INK, new_figure, save_figure, write_caption
from wordle_rl.runs.paths import module_command
from wordle_rl.runs.untrusted import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"✓": "#6aaa64", "-": "#c9b458", "x": "#5f6366", "": "#ffffff"}  # mark -> tile
_LETTER_COLOURS = {"✓": INK, "-": INK, "x": "#ffffff", "": INK}
_SIGNS = {"✓": "✓", "-": "–"}  # in a tile's corner, for those who cannot tell its colour
_CAPTION = "✓ in its place, – elsewhere in the word. One example, not a measurement."
_LETTERS = 5
_MOST_ROWS = 20  # of a board; rules may allow more guesses than a picture can show


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

    for row, (letters, marks, note, _) in enumerate(board.rows[:_MOST_ROWS]):
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
    axes.set_title(f"{plain_text(board.secret.upper())} {after}: {board.ending}", fontsize=10)
    axes.set_xlim(-0.1, _LETTERS + 1.9)
    axes.set_ylim(rows, -0.1)  # the first guess on top
    axes.set_aspect("equal")
    axes.axis("off")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = CommandParser(
        prog=module_command("plot_boards"),
        description="Draw validation games before and after training as a PNG.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    parser.add_argument(
        "--secret", nargs="+", metavar="WORD",
        help="which games; default: one that improved",
    )  # fmt: skip
    parser.add_argument("--title", help="default: what it shows, and the run")
    parser.add_argument(
        "--output", "--out", dest="out", type=Path, metavar="PNG", help="default <RUN>/boards.png"
    )
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
