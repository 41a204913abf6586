"""One set of rewards until the policy knows the answer format, then the run's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from wordle_rl.game.rules import Game
from wordle_rl.runs.instantiate import Within
from wordle_rl.training.curricula import FromFirst


@dataclass(kw_only=True)
class Gated(FromFirst):
    """Uses `first` until the share of turns with a readable guess reaches a threshold.

    The share is over the turns of the last `window` steps. The gate stays closed for the first
    `window` steps. Once open, it stays open.
    """

    kept = ("_open", "_recent")
    threshold: Annotated[float, Within(0, 1, "(]")] = 0.9
    window: Annotated[int, Within(1, 10_000)] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._open = False
        self._recent: list[list[int]] = []  # readable guesses and turns of the last steps

    @property
    def arrived(self) -> bool:
        return self._open

    def observe(self, groups: Sequence[Sequence[Game]]) -> None:
        turns = [turn for games in groups for game in games for turn in game.turns]
        guesses = sum(turn.guess is not None for turn in turns)
        self._recent = [*self._recent, [guesses, len(turns)]][-self.window :]
        if len(self._recent) == self.window:
            self._open = self._open or self._format() >= self.threshold

    def _format(self) -> float:
        guesses, turns = map(sum, zip(*self._recent, strict=True))
        return guesses / turns if turns else 0.0

    def metrics(self) -> dict[str, float]:
        return {"open": float(self._open), "format": self._format() if self._recent else 0.0}
