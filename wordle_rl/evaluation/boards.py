"""Games as coloured boards for terminals, and as a table.

A terminal needs ANSI colours and a fixed-width font. Clues that a game began with are shown above
its own turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from wordle_rl.game.rules import Game, GameStatus, TurnKind, marks_of
from wordle_rl.words.lists import WORD_LENGTH

if TYPE_CHECKING:
    from rich.text import Text

    from wordle_rl.rewards.scoring import GameReward

_TILES = {"✓": "black on green", "-": "black on yellow", "x": "bright_white on bright_black"}
NOTES = {  # what a turn without feedback was
    TurnKind.ACCEPTED: "",
    TurnKind.NOT_A_WORD: "not a word",
    TurnKind.BREAKS_HARD_MODE: "ignores a clue",
    TurnKind.UNPARSABLE: "no guess",
}
_GIVEN = "given"  # the note of a clue that the game began with
_NOTE_WIDTH = 28  # columns of a note in a terminal
_GAP = 3  # columns between boards
_PAIR = 80  # columns of two boards
_MOST_ROWS = 500  # of a table of games


def render(shown: Any, width: int, *, colour: bool = False) -> str:
    """What rich shows in so many columns, without blanks at the ends of lines."""
    from rich.console import Console

    console = Console(
        file=StringIO(), width=width, color_system="standard" if colour else None,
        force_terminal=colour, no_color=not colour, markup=False, emoji=False, highlight=False,
    )  # fmt: skip
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip("\n")


def _rows(game: Game) -> Iterator[tuple[str, str, str]]:
    """Guess (????? for none), marks ("" without feedback) and note of each turn."""
    for clue in (game.turns[0].state if game.turns else game.state).clues:
        yield clue.guess, clue.marks, _GIVEN
    for turn in game.turns:
        note = turn.reason or NOTES[turn.kind]
        # A note may quote a model, whose text must stay on its line.
        note = "".join(letter if letter.isprintable() else "?" for letter in note)
        marks = "" if turn.feedback is None else marks_of(turn.feedback)
        yield turn.guess or "?" * WORD_LENGTH, marks, note


def _ending(game: Game) -> str:
    if game.status is GameStatus.WON:
        return f"won in {game.state.turn}"
    if game.status is GameStatus.PLAYING:
        return "unfinished"
    return str(game.status).replace("_", " ")


def _board(game: Game, colour: bool, reward: GameReward | None = None) -> Text:
    """The secret, how the game ended, a row of tiles per turn, and the reward with its parts."""
    from rich.text import Text

    board = Text(f"{game.secret.upper()} {_ending(game)}", no_wrap=True, overflow="ellipsis")
    for guess, marks, note in _rows(game):
        board.append("\n" if colour else f"\n{guess.upper()} {marks:5}")
        for letter, mark in zip(guess.upper(), f"{marks:5}", strict=True) if colour else ():
            board.append(f" {letter} ", _TILES.get(mark))
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
    """Boards in as many columns as fit into width characters, at least one; "" without games.

    rewards: one per game; the sum and its parts are shown below each board.
    """
    from rich.columns import Columns

    given = [None] * len(games) if rewards is None else rewards
    boards = [_board(game, colour, reward) for game, reward in zip(games, given, strict=True)]
    # Columns collapses the empty lines below and above a board into one.
    return render(Columns(boards, padding=(1, _GAP, 1, 0), equal=True), width, colour=colour)


def show_pairs(
    pairs: Sequence[tuple[Game, Game]], count: int, titles: tuple[str, str], *, colour: bool = True
) -> str:
    """Two games of one secret side by side for at most count secrets, below the rule of the choice.

    pairs: in hash order, which is the same in every run. titles: heading of the left boards and of
    the right ones. A note that is too long for 80 columns is cut.
    """
    from rich.table import Table

    changed, same = choose_pairs(pairs, count)
    rule = (
        f"Boards, by hash order alone: secrets whose result changed ({len(changed)}), "
        f"others ({len(same)})."
    )
    table = Table(box=None, padding=(0, _GAP, 1, 0), pad_edge=False, header_style="")
    for title in titles:
        table.add_column(title, no_wrap=True, max_width=(_PAIR - _GAP) // 2)
    for pair in [*changed, *same]:
        table.add_row(*(_board(game, colour) for game in pair))
    return f"{rule}\n\n{render(table, _PAIR, colour=colour)}"


def choose_pairs(
    pairs: Sequence[tuple[Any, Any]], count: int
) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
    """The first pairs with another result than before, and the first ones with the same.

    pairs: of games, or of what else has `won`. count: pairs in all. Half of them changed, rounded
    up, as far as there are so many, whether for better or for worse.
    """
    changed = [pair for pair in pairs if pair[0].won != pair[1].won]
    same = [pair for pair in pairs if pair[0].won == pair[1].won]
    first = min(len(changed), max((count + 1) // 2, count - len(same)))
    return changed[:first], same[: count - first]


def tabulate_games(games: Sequence[Game], rewards: Sequence[GameReward]) -> list[dict[str, Any]]:
    """Secret, result, guesses, marks, reward and its parts of the first game on each secret.

    rewards: one per game. The table ends after 500 secrets. Guesses that were given at the start
    are in brackets. An answer without a guess is ?????, and a turn without marks is .....
    """
    first: dict[str, tuple[Game, GameReward]] = {}
    for game, reward in zip(games, rewards, strict=True):
        first.setdefault(game.secret, (game, reward))
    table = []
    for game, reward in list(first.values())[:_MOST_ROWS]:
        form = {True: "({})", False: "{}"}
        guesses, marks = (
            " ".join(form[row[2] == _GIVEN].format(row[i] or "." * WORD_LENGTH)
                     for row in _rows(game))
            for i in range(2)
        )  # fmt: skip
        table.append({
            "secret": game.secret, "won": game.won, "turns": game.state.turn, "guesses": guesses,
            "marks": marks, "reward": float(reward.total), **reward.components,
        })  # fmt: skip
    return table
