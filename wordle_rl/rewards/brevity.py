"""Penalty for long answers."""

from dataclasses import dataclass
from typing import Annotated

from wordle_rl.game.rules import PlayedTurn
from wordle_rl.runs.instantiate import MOST, Count, Within


@dataclass(frozen=True, kw_only=True)
class Brevity:
    """0 up to `free` sampled tokens, then falls linearly to -1 at free + per tokens."""

    free: Annotated[int, Within(0, MOST)] = 256  # tokens that cost nothing
    per: Count = 256  # tokens beyond them that cost 1
    range = (-1.0, 0.0)

    def __call__(self, turn: PlayedTurn) -> float:
        return -min(1.0, max(0, turn.tokens - self.free) / self.per)
