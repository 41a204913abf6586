"""Checkpoints of a run: its policy, its state and its curriculum's, and the exported model."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wordle_rl.policy.policy import Policy
from wordle_rl.runs import exchange
from wordle_rl.runs.checkpoints import CheckpointStore, step_of
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.files import FolderError, read_object, write_bytes, write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import shorten
from wordle_rl.training.curricula import Curriculum
from wordle_rl.training.lineage import Stage, write_stages
from wordle_rl.training.step import Sample

_STATE, _SAMPLES = "state.json", "samples.pickle"  # in a checkpoint's folder


@dataclass(kw_only=True)
class RunState:
    """How far a run has come. Its fields are the entries of state.json."""

    step: int = 0  # whole steps that the policy has seen
    # Rank of the best checkpoint, see rank_validation: empty before the first validation, then
    # three numbers.
    best: list[float] = field(default_factory=list)
    best_step: int = 0
    waited: int = 0  # validations in a row that were not better than the best
    start: list[float] = field(default_factory=list)  # rank of the start
    totals: dict[str, float] = field(default_factory=dict)  # of games and groups, see count()
    failures: int = 0  # steps in a row with a failed update
    stopped_before: int = 0  # trainer.steps when a callback stopped the run, 0 if none has
    curriculum: dict[str, Any] = field(default_factory=dict)  # its state_dict()

    @property
    def begun(self) -> bool:
        """Whether the start policy was validated."""
        return bool(self.best)

    @property
    def improved(self) -> bool:
        """Whether a validation beat the one of the start."""
        return self.best_step > 0 and self.best > self.start

    def count(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Add a step's games and groups to the totals. Returns the totals as metrics."""
        groups, num_resampled = metrics["groups/played"], metrics["groups/resampled"]
        for name, count in {
            "games": metrics["train/games"],
            "extra_games": metrics["train/extra_games"],
            "wins": metrics["train/wins"],
            "groups": groups,
            "zero_spread_groups": round(metrics["groups/zero_spread"] * groups),
            "skipped_groups": round(metrics["groups/skipped"] * (groups - num_resampled)),
            "resampled_groups": num_resampled,
        }.items():
            self.totals[name] = self.totals.get(name, 0.0) + count
        failed = metrics.get("update/skipped", 0.0) > 0
        self.failures = self.failures + 1 if failed else 0
        return {f"total/{name}": value for name, value in self.totals.items()}

    def note_validation(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Note a validation. Returns whether it is the best so far. A tie goes to the later one."""
        rank = rank_validation(metrics)
        if step == 0:
            self.start = rank
        self.waited = 0 if rank > self.best else self.waited + 1
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


class Checkpointing:
    """Saves and restores. With several processes, all restore and only the first one writes."""

    def __init__(
        self,
        policy: Policy,
        curriculum: Curriculum,
        folder: RunFolder,
        stages: Sequence[Stage],
        *,
        keep: int,
    ) -> None:
        """stages: the runs that the model was trained in, this one included.

        keep: how many of the newest checkpoints stay beside the best.
        """
        self._policy, self._curriculum, self._stages = policy, curriculum, stages
        self._writes = policy.processes.rank == 0
        self._store = CheckpointStore(folder.checkpoints, read_only=not self._writes, keep=keep)
        self._model = folder.path / "model"
        self._saved_step: int | None = None  # step of the last checkpoint saved or restored
        self.restored: Path | None = None  # the checkpoint that the run continues from
        self.more: list[Callable[[Path], None]] = []  # write what others keep into its folder

    def restore(self) -> tuple[RunState, list[Sample]]:
        """Return to the newest checkpoint, or begin without one.

        Returns the run's state, and the samples that wait to be learnt.
        """
        path = self._store.load_latest() if self._writes else None
        checkpoint = self._policy.processes.gather(path)[0]
        if checkpoint is None:
            return RunState(), []
        self._policy.load(checkpoint)
        self.restored = checkpoint
        state = RunState(**read_object(checkpoint / _STATE))
        self._curriculum.load_state_dict(state.curriculum)
        if state.begun:
            self._saved_step = state.step
            if self._writes and state.best_step == state.step:
                self._store.mark_best(state.step)  # the run may have been killed before this
        file = checkpoint / _SAMPLES
        try:
            return state, exchange.read(file.read_bytes()) if file.exists() else []
        except pickle.UnpicklingError as error:
            raise FolderError(f"{file}: {error}") from None

    def save(self, state: RunState, samples: list[Sample], *, best: bool) -> None:
        """Write a checkpoint unless this step has one. best: mark it as the best one."""
        if not self._writes:
            return
        state.curriculum = self._curriculum.state_dict()

        def write(folder: Path) -> None:
            self._policy.save(folder)
            write_stages(folder / "model", self._stages)
            write_json(folder / _STATE, asdict(state))
            if samples:
                write_bytes(folder / _SAMPLES, exchange.write(samples))
            for write_more in self.more:
                write_more(folder)

        if state.step != self._saved_step:
            self._store.save(state.step, write)
            self._saved_step = state.step
        if best:
            self._store.mark_best(state.step)

    def load_best(self) -> int:
        """Load the best readable checkpoint into the policy. Returns its step."""
        with user_errors():
            path = self._store.load_best() if self._writes else None
        checkpoint = self._policy.processes.gather(path)[0]
        assert checkpoint is not None
        self._policy.load(checkpoint)
        return step_of(checkpoint)

    def export(self, state: RunState, step: int, drawn: str) -> None:
        """Write the policy to the run's folder `model`. step: the one its weights are from.

        drawn: how validation chose its words.
        """
        if self._writes:
            self._policy.machine.export(self._model)
            write_stages(self._model, self._stages)
            print(f"\n{describe_export(self._model, step, state, drawn)}", flush=True)


def describe_export(folder: Path, step: int, state: RunState, drawn: str) -> str:
    """Two lines: which checkpoint is the best, and where its model is. step: the exported one."""
    wins, guesses, _ = state.best
    note = "" if step == state.best_step else f" is lost, so step {step} was exported"
    result = f"{100 * wins:.1f} % wins, {-guesses:.2f} guesses (a lost game counts one more)"
    line = f"best checkpoint: step {state.best_step}{note}"
    return f"{line}; validation, {drawn}, had {result}\n{shorten(folder)}"
