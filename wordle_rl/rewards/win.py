"""Reward for winning, and for winning early."""

from dataclasses import dataclass
from typing import Annotated

from wordle_rl.game.rules import PlayedTurn
from wordle_rl.runs.instantiate import Within

VIOLATION = -0.1


@dataclass(frozen=True, kw_only=True)
class Win:
    """1 + speed * unused turns / (max_turns - 1) on the winning turn, 0 on every other.

    Its declared least is -0.1, which only violations get, in a lawful set. They so stay below an
    honest guess even where nothing else is rewarded.
    """

    # What winning at the first turn adds to winning at the last. At 0 an early win would be worth
    # no more than a late one; scoring needs the upper bound.
    speed: Annotated[float, Within(0, 1, "(]")] = 0.5

    @property
    def range(self) -> tuple[float, float]:
        return (VIOLATION, 1 + self.speed)

    def step(self, max_turns: int) -> float:
        """What winning one turn earlier is worth, unweighted."""
        return self.speed / max(1, max_turns - 1)

    def __call__(self, turn: PlayedTurn) -> float:
        if not turn.won:
            return 0.0
        turns = turn.state.max_turns - turn.state.turn - 1
        return 1 + turns * self.step(turn.state.max_turns)
