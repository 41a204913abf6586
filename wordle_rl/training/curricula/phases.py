"""Two phases by epoch: one set of rewards first, then the run's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from wordle_rl.game.rules import Game
from wordle_rl.runs.instantiate import Within
from wordle_rl.training.curricula import FromFirst

Epochs = Annotated[float, Within(0, 1_000_000, "(]")]


@dataclass(kw_only=True)
class Phases(FromFirst):
    """Uses `first` for some epochs, then reward=.

    An epoch has one group for each training secret. It counts groups instead of steps, so a resumed
    run may change the number of groups per step.
    """

    kept = ("_groups",)
    secrets: tuple[str, ...]
    epochs: Epochs = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._groups = 0  # played so far

    @property
    def share(self) -> float:
        """The share of the way from first to reward= that is done, 0..1."""
        return min(self._groups / len(self.secrets) / self.epochs, 1.0)

    @property
    def arrived(self) -> bool:
        return self.share == 1.0

    def observe(self, groups: Sequence[Sequence[Game]]) -> None:
        self._groups += len(groups)

    def metrics(self) -> dict[str, float]:
        return {"epoch": self._groups / len(self.secrets), "share": self.share}
