"""Penalty for long answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wordle_rl.game import PlayedTurn


@dataclass(frozen=True, kw_only=True)
class Brevity:
    """0 up to `free` sampled tokens, then falling evenly to -1 at free + per tokens."""

    free: int = 256  # tokens that cost nothing
    per: int = 256  # tokens beyond them that cost 1
    range: ClassVar[tuple[float, float]] = (-1.0, 0.0)

    def __post_init__(self) -> None:
        if self.free < 0:
            raise ValueError(f"brevity.free must be 0 or more tokens, not {self.free}")
        if self.per < 1:
            raise ValueError(f"brevity.per must be 1 or more tokens, not {self.per}")

    def __call__(self, turn: PlayedTurn) -> float:
        return -min(1.0, max(0, turn.tokens - self.free) / self.per)
