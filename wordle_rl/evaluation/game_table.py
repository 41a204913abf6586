"""Games as a table with a row per secret, for TensorBoard and Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wordle_rl.game.rules import Game, marks_of
from wordle_rl.words.lists import WORD_LENGTH

if TYPE_CHECKING:
    from wordle_rl.rewards.scoring import GameReward

_MOST_ROWS = 500

Cell = str | int | float | bool


@dataclass(frozen=True, kw_only=True, slots=True)
class GameTable:
    """Rows of games. Each column has values of one type."""

    columns: list[str]
    rows: list[list[Cell]]

    @property
    def markdown(self) -> str:
        """The table in Markdown, numbers with two decimals."""
        lines = [self.columns, ["---"] * len(self.columns), *(map(_text, row) for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tabulate_games(games: Sequence[Game], rewards: Sequence[GameReward]) -> GameTable:
    """Secret, result, guesses, marks, reward and its parts of the first game on each secret.

    rewards: one per game. The table ends after 500 secrets. Guesses that were given at the start
    are in brackets. An answer without a guess is ?????, and a turn without marks is .....
    """
    first: dict[str, tuple[Game, GameReward]] = {}
    for game, reward in zip(games, rewards, strict=True):
        first.setdefault(game.secret, (game, reward))
    shown = list(first.values())[:_MOST_ROWS]
    parts = list(dict.fromkeys(name for _, reward in shown for name in reward.components))
    return GameTable(
        columns=["secret", "won", "turns", "guesses", "marks", "reward", *parts],
        rows=[_row(game, reward, parts) for game, reward in shown],
    )


def _row(game: Game, reward: GameReward, parts: Sequence[str]) -> list[Cell]:
    given = (game.turns[0].state if game.turns else game.state).clues
    guesses = [f"({clue.guess})" for clue in given]
    guesses += [turn.guess or "?" * WORD_LENGTH for turn in game.turns]
    marks = [f"({clue.marks})" for clue in given]
    marks += [
        "." * WORD_LENGTH if turn.feedback is None else marks_of(turn.feedback)
        for turn in game.turns
    ]
    of_parts = reward.components
    return [
        game.secret, game.won, game.state.turn, " ".join(guesses), " ".join(marks),
        float(reward.total), *(float(of_parts.get(name, 0.0)) for name in parts),
    ]  # fmt: skip


def _text(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
