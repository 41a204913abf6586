"""Games as coloured boards for terminals.

A terminal needs ANSI colours and a fixed-width font. Clues that a game began with are shown above
its own turns.
"""

from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from wordle_rl.game.rules import Game, GameStatus, TurnKind, marks_of
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.words.lists import WORD_LENGTH

# Mark -> its colour, and what the tile has beside the letter, for who cannot tell the colours.
_TILES = {
    "✓": ("black on green", "✓"),
    "-": ("black on yellow", "-"),
    "x": ("bright_white on bright_black", " "),
    " ": ("", " "),
}
NOTES = {  # what a turn without feedback was
    TurnKind.ACCEPTED: "",
    TurnKind.NOT_A_WORD: "not a word",
    TurnKind.BREAKS_HARD_MODE: "ignores a clue",
    TurnKind.UNPARSABLE: "no guess",
}
_GIVEN = "given"  # the note of a clue that the game began with
_NOTE_WIDTH = 28  # columns of a note in a terminal
_GAP = 3  # columns between boards
_WIDEST = 100  # columns at most, and where there is no terminal


def columns() -> int:
    """The width for tables and boards."""
    console = Console()
    return min(console.width, _WIDEST) if console.is_terminal else _WIDEST


def shows_colours() -> bool:
    """Whether the standard output shows colours. NO_COLOR switches them off (no-color.org)."""
    console = Console()
    return console.color_system is not None and not console.no_color


def bold(text: str) -> str:
    """The text in bold where the standard output shows colours."""
    return f"\x1b[1m{text}\x1b[0m" if shows_colours() else text


def render(shown: Any, width: int, *, colour: bool = False) -> str:
    """What rich shows in so many columns, without blanks at the ends of lines."""
    console = Console(
        file=StringIO(),
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()).rstrip("\n")


def tabulate(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int,
    justify: Any = "right",
    no_wrap: bool = False,
    gap: int = 2,
) -> str:
    """A table. justify, no_wrap: of the cells behind the first of each row. gap: 1 or more."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), show_edge=False, pad_edge=False)
    table.add_column(heads[0], overflow="fold", min_width=len(heads[0]) + 2)
    for head in heads[1:]:
        table.add_column(head, justify=justify, no_wrap=no_wrap, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return render(table, width)


def _rows(game: Game) -> Iterator[tuple[str, str, str]]:
    """Guess (????? for none), marks ("" without feedback) and note of each turn."""
    for clue in (game.turns[0].state if game.turns else game.state).clues:
        yield clue.guess, clue.marks, _GIVEN
    for turn in game.turns:
        note = (turn.reason or NOTES[turn.kind]).replace("_", " ")
        # A note may quote a model, whose text must stay on its line.
        note = "".join(letter if letter.isprintable() else "?" for letter in note)
        marks = "" if turn.feedback is None else marks_of(turn.feedback)
        yield turn.guess or "?" * WORD_LENGTH, marks, note


def _ending(game: Game) -> str:
    if game.status is GameStatus.WON:
        return f"won in {game.state.turn}"
    return "unfinished" if game.status is GameStatus.PLAYING else "lost"


def _board(game: Game, colour: bool, reward: GameReward | None = None) -> Text:
    """The secret, how the game ended, a row of tiles per turn, and the reward with its parts."""
    board = Text(f"{game.secret.upper()} {_ending(game)}", no_wrap=True, overflow="ellipsis")
    for guess, marks, note in _rows(game):
        board.append("\n" if colour else f"\n{guess.upper()} {marks:5}")
        for letter, mark in zip(guess.upper(), f"{marks:5}", strict=True) if colour else ():
            style, symbol = _TILES[mark]
            board.append(f" {letter}{symbol}", style)
        board.append(f" {note[:_NOTE_WIDTH]}" if note else "")
    if reward is not None:
        for name, value in {"reward": reward.total, **reward.components}.items():
            board.append(f"\n{name:<10} {value:6.2f}")
    return board


def boards_side_by_side(
    games: Sequence[Game],
    width: int = 100,
    *,
    colour: bool = True,
    rewards: Sequence[GameReward] | None = None,
) -> str:
    """Boards in as many columns as fit. rewards: one per game, shown below its board."""
    scores = [None] * len(games) if rewards is None else rewards
    boards = [_board(game, colour, reward) for game, reward in zip(games, scores, strict=True)]
    # Columns collapses the empty lines below and above a board into one.
    return render(Columns(boards, padding=(1, _GAP, 1, 0), equal=True), width, colour=colour)
