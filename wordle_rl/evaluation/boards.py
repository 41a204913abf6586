"""Games as coloured boards, for terminals and for Markdown.

A terminal needs ANSI colours and a fixed-width font. Clues that a game began with are shown above
its own turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wordle_rl.game.rules import Game, GameStatus, PlayedTurn, TurnKind, marks_of
from wordle_rl.words.lists import WORD_LENGTH

if TYPE_CHECKING:
    from wordle_rl.rewards.scoring import GameReward

_TILES = {"✓": "30;42", "-": "30;43", "x": "97;100"}  # mark -> ANSI colours: green, yellow, grey
_SQUARES = {"✓": "🟩", "-": "🟨", "x": "⬛"}
_NOTES = {
    TurnKind.ACCEPTED: "",
    TurnKind.NOT_A_WORD: "not a word",
    TurnKind.BREAKS_HARD_MODE: "ignores a clue",
    TurnKind.UNPARSABLE: "no guess",
}
_GAP = "   "  # between boards
_NOTE_WIDTH = 28  # columns of a note in a terminal

_Line = tuple[str, str, str]  # guess in capitals, marks or "", note
_Row = tuple[str, int]  # of a board in a terminal: its text, and its columns (colours have none)


def ansi_board(game: Game, *, colour: bool = True) -> str:
    """The secret, how the game ended, and a row of tiles per turn.

    Without colour, a row is the letters and the marks. A turn without feedback says why.
    """
    return "\n".join(text for text, _ in _terminal_rows(game, colour))


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
    boards = [_terminal_rows(game, colour) for game in games]
    if rewards is not None:
        boards = [
            board + [(line, len(line)) for line in _reward_lines(reward)]
            for board, reward in zip(boards, rewards, strict=True)
        ]
    if not boards:
        return ""
    column = max(columns for board in boards for _, columns in board)
    across = max(1, (width + len(_GAP)) // (column + len(_GAP)))
    return "\n\n".join(
        _beside(boards[start : start + across], column) for start in range(0, len(boards), across)
    )


def paired_boards(
    pairs: Sequence[tuple[Game, Game]],
    titles: tuple[str, str],
    width: int = 80,
    *,
    colour: bool = True,
) -> str:
    """Two games of one secret side by side, a pair below the other, in width characters.

    titles: heading of the left boards and of the right ones. A note that is too long is cut.
    """
    half = (width - len(_GAP)) // 2
    boards = [[_terminal_rows(game, colour, half) for game in pair] for pair in pairs]
    rows = [row for pair in boards for board in pair for row in board]
    column = max([len(title) for title in titles] + [columns for _, columns in rows])
    heading = _beside([[(title, len(title))] for title in titles], column)
    return "\n\n".join([heading, *(_beside(pair, column) for pair in boards)])


def _beside(boards: Sequence[Sequence[_Row]], column: int) -> str:
    """Boards side by side, each in so many columns."""
    height = max(len(board) for board in boards)
    filled = [[*board, *[("", 0)] * (height - len(board))] for board in boards]
    lines = (
        _GAP.join(text + " " * (column - columns) for text, columns in row).rstrip()
        for row in zip(*filled, strict=True)
    )
    return "\n".join(lines)


def markdown_board(game: Game, reward: GameReward | None = None) -> str:
    """A game as a Markdown table with emoji squares; with reward, its parts turn by turn.

    Raises ValueError when reward has another number of turns than the game.
    """
    given = len(_clues_at_start(game))
    title = f"**{game.secret.upper()}** {_ending(game)}"
    if reward is not None:
        if len(reward.turns) != len(game.turns):
            raise ValueError(f"reward has {len(reward.turns)} turns, the game {len(game.turns)}")
        title += f", reward {reward.total:.2f}"
    header = ["feedback", "guess", "note"] + (["reward"] if reward is not None else [])
    lines = [title, "", _table_row(header), _table_row(["---"] * len(header))]
    for i, (guess, marks, note) in enumerate(_lines(game)):
        squares = "".join(_SQUARES[mark] for mark in marks) or "⬜" * WORD_LENGTH
        cells = [squares, guess, note]
        if reward is not None:
            parts = reward.turns[i - given] if i >= given else {}
            cells.append(", ".join(f"{name} {value:.2f}" for name, value in parts.items()))
        lines.append(_table_row(cells))
    return "\n".join(lines)


def _clues_at_start(game: Game) -> list[_Line]:
    first = game.turns[0].state if game.turns else game.state
    return [(clue.guess.upper(), clue.marks, "given") for clue in first.clues]


def _lines(game: Game) -> list[_Line]:
    return [*_clues_at_start(game), *map(_turn_line, game.turns)]


def _turn_line(turn: PlayedTurn) -> _Line:
    note = turn.reason or _NOTES[turn.kind]
    # A note may quote a model, whose text must not control the terminal.
    note = "".join(letter if letter.isprintable() else "?" for letter in note)
    marks = "" if turn.feedback is None else marks_of(turn.feedback)
    return (turn.guess or "").upper(), marks, note


def _ending(game: Game) -> str:
    if game.status is GameStatus.WON:
        return f"won in {game.state.turn}"
    if game.status is GameStatus.PLAYING:
        return "unfinished"
    return str(game.status).replace("_", " ")


def _terminal_rows(game: Game, colour: bool, width: int | None = None) -> list[_Row]:
    """The rows of a board. Notes are cut where a row would be wider than width."""
    title = f"{game.secret.upper()} {_ending(game)}"
    rows = [(title, len(title))]
    for guess, marks, note in _lines(game):
        letters = guess or "?" * WORD_LENGTH
        if colour:
            bare = shown = "".join(f" {letter} " for letter in letters)
            if marks:
                tiles = zip(marks, letters, strict=True)
                shown = "".join(f"\x1b[{_TILES[mark]}m {letter} \x1b[0m" for mark, letter in tiles)
        else:
            shown = bare = f"{letters} {marks or ' ' * WORD_LENGTH}"
        room = _NOTE_WIDTH if width is None else min(_NOTE_WIDTH, width - len(bare) - 1)
        note = f" {note[:room]}" if note else ""
        rows.append((shown + note, len(bare + note)))
    return rows


def _reward_lines(reward: GameReward) -> list[str]:
    parts = {"reward": reward.total, **reward.components}
    return [f"{name:<10} {value:6.2f}" for name, value in parts.items()]


def _table_row(cells: Sequence[str]) -> str:
    escaped = (
        cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in cells
    )
    return f"| {' | '.join(escaped)} |"
