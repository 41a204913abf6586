"""Saves and restores a run: policy, state and curriculum, as checkpoints and as a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wordle_rl.policy.policy import Policy
from wordle_rl.policy.stages import Stage, write_stages
from wordle_rl.runs.checkpoints import Checkpoint, CheckpointStore
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.curriculum import CurriculumRunner
from wordle_rl.training.outcome import describe_export
from wordle_rl.training.state import RunState


class Checkpointing:
    """Saves and restores. With several processes, all restore and only the first one writes."""

    def __init__(
        self,
        policy: Policy,
        curriculum: CurriculumRunner,
        folder: RunFolder,
        stages: Sequence[Stage],
    ) -> None:
        """stages: the runs that the model was trained in, this one included."""
        self._policy, self._curriculum, self._stages = policy, curriculum, stages
        self._writes = policy.processes.rank == 0
        self._store = CheckpointStore(folder.checkpoints, read_only=not self._writes)
        self._model = folder.path / "model"
        self._saved: int | None = None  # step of the last checkpoint saved or restored

    def restore(self) -> RunState:
        """Return to the newest checkpoint. Without one, returns the state of a new run."""
        newest = self._store.load_latest() if self._writes else None
        checkpoint = self._policy.processes.gather(newest)[0]
        if checkpoint is None:
            return RunState()
        self._policy.load(checkpoint.path)
        state = RunState.read(checkpoint.path)
        self._curriculum.load_state_dict(state.curriculum)
        if state.begun:
            self._saved = state.step
            if self._writes and state.best_step == state.step:
                self._store.mark_best(state.step)  # the run may have been killed before this
        return state

    def save(self, state: RunState, *, best: bool) -> None:
        """Write a checkpoint unless this step has one. best: mark it as the best one."""
        if not self._writes:
            return
        state.curriculum = self._curriculum.state_dict()

        def write(folder: Path) -> None:
            self._policy.save(folder)
            write_stages(folder / "model", self._stages)
            state.write(folder)

        if state.step != self._saved:
            self._store.save(state.step, write)
            self._saved = state.step
        if best:
            self._store.mark_best(state.step)

    def load_best(self) -> int:
        """Load the best readable checkpoint into the policy. Returns its step."""
        with user_errors():
            best = self._store.load_best() if self._writes else None
        found: Checkpoint | None = self._policy.processes.gather(best)[0]
        assert found is not None
        self._policy.load(found.path)
        return found.step

    def export(self, state: RunState, step: int) -> None:
        """Write the policy to the run's folder `model`. step: the one its weights are from."""
        if not self._writes:
            return
        self._policy.export(self._model)
        write_stages(self._model, self._stages)
        line = describe_export(self._model, step, state.step, state.best_step, state.best)
        print(f"\n{line}", flush=True)

    def newest(self) -> int | None:
        """The step of the newest checkpoint, None without one."""
        newest = self._store.latest()
        return None if newest is None else int(newest.name.removeprefix("step_"))
