"""Runs that fail: the manifest says so and why, and what was reached can be gone on from."""

import errno
import os
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mlx.core as mx
import numpy as np
import pytest
import torch

from tests.helpers.commands import error_of
from tests.helpers.runs import metrics_of, resume, run, settings
from wordle_rl.backends.mlx import engine as mlx_engine
from wordle_rl.backends.torch import backend as lightning_backend
from wordle_rl.backends.torch import engine as torch_engine
from wordle_rl.backends.torch.machine import TorchMachine
from wordle_rl.policy.batch import DoesNotFit
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rewards.brevity import Brevity
from wordle_rl.rollouts import kinds
from wordle_rl.runs.checkpoints import CheckpointStore, step_of
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import TRAIN
from wordle_rl.training import validation

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("done")
    (base / "runs").mkdir()
    return run(base / "runs", *settings(base, "dpo"), "trainer.steps=1", "trainer.report=false")[1]


@pytest.fixture
def folder(done: Path, tmp_path: Path) -> Path:
    """A copy of a run of one step, for a test to continue."""
    return shutil.copytree(done, tmp_path / "run")


def fail_with(place: Any, name: str, error: Exception, folder: Path, *overrides: str) -> None:
    """Continue a run in which a function raises an error."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patch, pytest.raises((type(error), SystemExit)):
        patch.setattr(place, name, fail)
        resume(folder, "trainer.steps=2", *overrides)
    assert RunFolder(folder).manifest()["status"] == "failed"


@pytest.mark.parametrize(
    ("place", "name", "error", "reason"),
    [
        (Policy, "update", ZeroDivisionError("in a bug"), "ZeroDivisionError: in a bug"),
        (TorchMachine, "export", OSError(errno.ENOSPC, "No space left"), "No space left"),
    ],
)
def test_a_failed_run_is_recorded_as_failed_with_its_reason(place, name, error, reason, folder):
    fail_with(place, name, error, folder)
    assert reason in RunFolder(folder).manifest()["status_reason"]
    resume(folder, "trainer.steps=2")
    manifest = RunFolder(folder).manifest()
    assert (manifest["status"], manifest["status_reason"]) == ("finished", None)


OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to\nallocate 2.00 GiB.")


@pytest.mark.parametrize(
    ("place", "name", "error", "told"),
    [
        (kinds, "play", OOM, "lower rollout.num_generations"),
        (Brevity, "__call__", MemoryError(), "lower rollout.num_generations"),
        (Policy, "update", OOM, "lower rollout.num_generations"),
        (Policy, "update", DoesNotFit(sequences=1, tokens=812), "1 sequences of up to 812"),
    ],
)
def test_a_lack_of_memory_ends_a_run_in_one_line(place, name, error, told, folder, capsys):
    fail_with(place, name, error, folder)
    line = error_of(capsys.readouterr().err)
    assert line.startswith("error: out of memory: ") and told in line
    assert f"continue with {TRAIN} resume={folder}" in line
    # An update may have changed the weights already.
    assert ("the run is saved" in line) == (name != "update")


@pytest.mark.parametrize("place", [validation, lightning_backend])
def test_a_run_without_memory_before_it_measured_anything_leaves_nothing_to_go_on_from(
    place, tmp_path, capsys
):
    (tmp_path / "runs").mkdir()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(place, {validation: "play"}.get(place, "load_model"), Mock(side_effect=OOM))
        run(tmp_path / "runs", *settings(tmp_path, "dpo"))
    line = error_of(capsys.readouterr().err)
    assert line.startswith("error: out of memory: ") and "resume=" not in line
    assert not [*(tmp_path / "runs").iterdir()]


@pytest.mark.parametrize("found_by", ["validation", "checkpoint", "a signal"])
def test_weights_that_are_no_numbers_end_the_run_and_are_not_kept(found_by, folder, capsys):
    update, count = Policy.update, 0

    def spoil(policy: Policy, *arguments: Any) -> dict[str, float]:
        nonlocal count
        metrics, count = update(policy, *arguments), count + 1
        if found_by == "a signal":
            os.kill(os.getpid(), signal.SIGINT)
        with torch.no_grad():
            policy.machine.trainable[0][:] = torch.nan
        return metrics

    period = {"validation": 2, "checkpoint": 9, "a signal": 9}[found_by]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(Policy, "update", spoil)
        resume(folder, "trainer.steps=3", f"trainer.validate_every={period}")
    line = error_of(capsys.readouterr().err)
    assert stop.value.code == 1 and "are not finite numbers, after step 2" in line
    assert "optim.lr" in line and RunFolder(folder).manifest()["status_reason"] in line
    if found_by == "validation":  # before that step is logged
        assert [m["step"] for m in metrics_of(folder)] == [0, 1]
    checkpoint = CheckpointStore(folder / "checkpoints", read_only=True).load_latest()
    assert checkpoint is not None and step_of(checkpoint) == 1
    resume(folder, "optim.lr=1e-4")  # as the line says
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2, 3] and count == 1


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.0)])
def test_nothing_is_drawn_from_logits_that_are_no_numbers(sampling):
    logits = np.zeros((3, 5), np.float32)
    logits[1] = np.nan
    for draw, array in (
        (torch_engine.draw_tokens, torch.from_numpy),
        (mlx_engine.draw_tokens, mx.array),
    ):
        with pytest.raises(NotFinite):
            draw(array(logits), sampling, np.full(3, 0.4))
