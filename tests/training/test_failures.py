"""Runs that fail: the manifest says so and why, and what was reached can be gone on from."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

from tests.helpers.runs import metrics_of, resume, run, settings
from wordle_rl.backends.mlx import engine as mlx_engine
from wordle_rl.backends.torch import engine as torch_engine
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.policy.batch import DoesNotFit
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("done")
    (base / "runs").mkdir()
    return run(base / "runs", *settings(base, "sft"), "trainer.steps=1", "trainer.report=false")[1]


@pytest.fixture
def folder(done: Path, tmp_path: Path) -> Path:
    """A copy of a run of one step, for a test to continue."""
    return shutil.copytree(done, tmp_path / "run")


def raises(error: Exception) -> Any:
    def instead(*_: Any, **__: Any) -> Any:
        raise error

    return instead


@pytest.mark.parametrize(
    ("place", "name", "error", "reason"),
    [
        (RewardSet, "score", ZeroDivisionError("in a reward"), "ZeroDivisionError: in a reward"),
        (TorchPolicy, "update", torch.OutOfMemoryError("CUDA: out of memory"), "out of memory"),
        (TorchPolicy, "update", MemoryError(), "MemoryError"),
        (TorchPolicy, "export", OSError(errno.ENOSPC, "No space left"), "No space left"),
        (TorchPolicy, "update", BrokenPipeError("reader left"), "BrokenPipeError: reader left"),
    ],
)
def test_a_failed_run_is_recorded_as_failed_with_its_reason(
    place, name, error, reason, folder, monkeypatch
):
    with monkeypatch.context() as patch, pytest.raises((type(error), SystemExit)):
        patch.setattr(place, name, raises(error))
        resume(folder, "trainer.steps=2")
    manifest = RunFolder(folder).manifest()
    assert manifest["status"] == "failed" and reason in manifest["status_reason"]
    resume(folder, "trainer.steps=2")
    manifest = RunFolder(folder).manifest()
    assert (manifest["status"], manifest["status_reason"]) == ("finished", None)


def test_weights_that_are_no_numbers_end_the_run_with_all_that_is_known(folder, capsys):
    update = TorchPolicy.update

    def spoil(policy: TorchPolicy, *arguments: Any) -> dict[str, float]:
        metrics = update(policy, *arguments)
        with torch.no_grad():
            policy.trainable[0][:] = torch.nan
        return metrics

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(TorchPolicy, "update", spoil)
        resume(folder, "trainer.steps=9", "trainer.validate_every=2")
    error = capsys.readouterr().err.strip()
    assert stop.value.code == 1 and len(error.splitlines()) == 1
    assert "predictions are not finite numbers, after step " in error and "optim.lr" in error
    assert RunFolder(folder).manifest()["status_reason"] in error
    failure = json.loads((folder / "failure" / "failure.json").read_text())
    # The validation after step 2 finds out, before that step is logged.
    assert (failure["step"], failure["metrics"]["step"]) == (2, 1)
    assert (folder / "failure" / "model" / "model.safetensors").is_file()
    newest = CheckpointStore(folder / "checkpoints", read_only=True).load_latest()
    assert newest is not None and newest.step == 1
    resume(folder, "trainer.steps=2")
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2]


def test_a_sequence_that_does_not_fit_into_memory_ends_the_run_in_one_line(folder, capsys):
    def run_out(policy: TorchPolicy, *arguments: Any) -> None:
        raise DoesNotFit(sequences=1, tokens=812)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(TorchPolicy, "update", run_out)
        resume(folder, "trainer.steps=9")
    [line] = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 1 and "1 sequence of up to 812 tokens must fit" in line
    assert f"with python train.py resume={folder}" in line
    assert RunFolder(folder).manifest()["status"] == "failed"


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.0), Sampling(top_k=2)])
def test_nothing_is_drawn_from_logits_that_are_no_numbers(sampling):
    logits = np.zeros((3, 5), np.float32)
    logits[1] = np.nan
    with pytest.raises(NotFinite):
        drawn = torch_engine.draw_tokens(torch.from_numpy(logits), sampling, torch.full((3,), 0.4))
        torch_engine.fetch_drawn(*drawn)
    _, logprobs = mlx_engine.sample_tokens(mx.array(logits), sampling, mx.full((3,), 0.4))
    assert np.isfinite(np.array(logprobs)).tolist() == [True, False, True]
