"""Runs that a job manager starts several of at once: each is a run of its own, and logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lightning.fabric.utilities.rank_zero import rank_zero_only
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.helpers.runs import run, settings
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.runs.paths import ROOT

LSF = {"LSB_JOBID": "1", "LSB_DJOB_RANKFILE": "hosts", "JSM_NAMESPACE_SIZE": "2"}


def slurm(task: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "many", "SLURM_NTASKS": "2", "SLURM_NODEID": "0",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task),
    }  # fmt: skip


TASKS = {
    "srun": slurm(1),
    "jsrun": {**LSF, "JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_LOCAL_RANK": "1"},
}


def scalars(folder: Path) -> dict[str, list[int]]:
    """The curves of a run that TensorBoard shows, and the steps that each has."""
    [curves] = (folder / "tensorboard").iterdir()
    events = EventAccumulator(str(curves), {"scalars": 0}).Reload()
    return {tag: [e.step for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def brief(folder: Path) -> list[str]:
    given = ["trainer.steps=2", "trainer.report=false", "logger=tensorboard"]
    return [*settings(folder, "sft"), *given]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("manager", TASKS)
def test_a_run_that_is_one_task_of_several_trains_and_logs(manager, tmp_path, monkeypatch):
    for name, value in TASKS[manager].items():
        monkeypatch.setenv(name, value)
    # As Lightning sets it from such an environment, when it is imported.
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    handlers = handlers_in_updates(monkeypatch)
    (root := tmp_path / "runs").mkdir()
    _, folder = run(root, *brief(tmp_path))
    assert scalars(folder)["train/win_rate"] == [1, 2]
    assert handlers == [signal.SIG_DFL] * 2, "Lightning would queue the job again"


def handlers_in_updates(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects what would be done on SIGUSR1 while a policy is updated."""
    real, found = TorchPolicy.update, []

    def update(*arguments: Any) -> Any:
        found.append(signal.getsignal(signal.SIGUSR1))
        return real(*arguments)

    monkeypatch.setattr(TorchPolicy, "update", update)
    return found


@pytest.mark.slow  # in seconds, each task in the place of the tests' process: the test above
@pytest.mark.parametrize("devices", [1, 2])
def test_two_tasks_of_slurm_are_two_runs_that_train_and_log(devices, tmp_path):
    given = [*brief(tmp_path), f"backend.devices={devices}", f"output_dir={tmp_path / 'runs'}"]
    tasks = [
        subprocess.Popen(
            [sys.executable, "train.py", *given], cwd=ROOT, env={**os.environ, **slurm(task)}
        )
        for task in (0, 1)
    ]
    assert [task.wait() for task in tasks] == [0, 0]
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert scalars(folder)["train/win_rate"] == [1, 2]
