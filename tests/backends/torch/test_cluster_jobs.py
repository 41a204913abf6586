"""Runs that a job manager starts several of at once: each is a run of its own, and logs."""

from lightning.fabric.utilities.rank_zero import rank_zero_only
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.helpers.runs import run, settings


def test_a_run_that_is_one_task_of_several_trains_and_logs(tmp_path, monkeypatch):
    task = {"JOB_ID": "1", "NTASKS": "2", "PROCID": "1", "LOCALID": "1", "NODEID": "0"}
    for name, value in task.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    # As Lightning sets it from such an environment, when it is imported.
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    args = ["trainer.steps=2", "trainer.report=false", "logger=tensorboard"]
    _, folder = run(tmp_path, *settings(tmp_path, "sft"), *args)
    events = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    assert [event.step for event in events.Scalars("0_wins/train/win_rate")] == [1, 2]
