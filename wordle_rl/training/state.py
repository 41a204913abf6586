"""state.json: a run's state in a checkpoint, besides weights and optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.files import FolderError, check_all_entries, read_object, write_json

FILE = "state.json"  # in a checkpoint's folder
_KINDS: dict[str, Any] = {
    "step": int,
    "best": list[float],
    "best_step": int,
    "start": list[float],
    "totals": dict[str, float],
    "failures": int,
    "curriculum": dict,
}
_COUNTED = (
    *("games", "extra_games", "wins", "groups", "zero_spread_groups"),
    *("skipped_groups", "resampled_groups"),
)


@dataclass(kw_only=True)
class RunState:
    """How far a run has come. Its fields are the entries of state.json."""

    step: int = 0  # whole steps that the policy has seen
    # Rank of the best checkpoint, see rank_validation: empty before the first validation, then
    # three numbers.
    best: list[float] = field(default_factory=list)
    best_step: int = 0
    start: list[float] = field(default_factory=list)  # rank of the start
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0.0))
    failures: int = 0  # steps in a row with a failed update
    curriculum: dict[str, Any] = field(default_factory=dict)  # its state_dict()

    @property
    def begun(self) -> bool:
        """Whether the start policy was validated."""
        return bool(self.best)

    @property
    def improved(self) -> bool:
        """Whether a validation beat the one of the start."""
        return self.best_step > 0 and self.best > self.start

    @classmethod
    def read(cls, checkpoint: Path) -> RunState:
        """Read the state in a checkpoint's folder. Raises CheckpointError naming the file."""
        path = checkpoint / FILE
        try:
            entries = read_object(path)
            check_all_entries(path, entries, _KINDS)
            state = cls(**{name: entries[name] for name in _KINDS})
            if checkpoint.name != f"step_{state.step:06d}":
                raise FolderError(f"{path}: is about step {state.step}")
        except FileNotFoundError:
            raise CheckpointError(f"{path}: missing") from None
        except FolderError as error:
            raise CheckpointError(str(error)) from None
        return state

    def write(self, checkpoint: Path) -> None:
        """Write the state to a checkpoint's folder."""
        write_json(checkpoint / FILE, asdict(self))

    def count(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Add a step's games and groups to the totals. Returns the totals as metrics."""
        groups, resampled = metrics["groups/played"], metrics["groups/resampled"]
        for name, count in {
            "games": metrics["train/games"],
            "extra_games": metrics["train/extra_games"],
            "wins": metrics["train/wins"],
            "groups": groups,
            "zero_spread_groups": round(metrics["groups/zero_spread"] * groups),
            "skipped_groups": round(metrics["groups/skipped"] * (groups - resampled)),
            "resampled_groups": resampled,
        }.items():
            self.totals[name] += count
        failed = metrics.get("update/skipped", 0.0) > 0
        self.failures = self.failures + 1 if failed else 0
        return {f"total/{name}": value for name, value in self.totals.items()}

    def note_validation(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Note a validation. Returns whether it is the best so far. A tie goes to the later one."""
        rank = rank_validation(metrics)
        if step == 0:
            self.start = rank
        if rank < self.best:
            return False
        self.best, self.best_step = rank, step
        return True


def rank_validation(validation: Mapping[str, float]) -> list[float]:
    """The numbers that rank checkpoints: wins, then guesses, then reward. Greater is better.

    The reward still shows progress when no game is won.
    """
    guesses = validation["val/mean_guesses_with_losses"]
    return [validation["val/win_rate"], -guesses, validation["val/reward"]]
