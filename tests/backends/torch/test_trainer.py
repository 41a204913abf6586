"""Lightning's Trainer around a run: what callbacks see and do, and that nothing else changes."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.callbacks import PLACE, Diary
from tests.helpers.configs import composed
from tests.helpers.runs import (
    assert_close_runs,
    assert_equal_runs,
    assert_saved,
    metrics_of,
    resume,
    run,
    settings,
    stop,
    without_clock,
)
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.policy import Policy
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import NAMED, ConfigError, instantiate_foreign
from wordle_rl.runs.paths import ROOT, TRAIN

pytestmark = pytest.mark.usefixtures("quiet")
LIBRARY = "lightning.pytorch.callbacks"
# Wins cannot improve, so it stops the run after its second validation.
STOPS = ["callbacks=early_stopping", "callbacks.early_stopping.patience=1"]
SHORT_RUN = ["trainer.report=false", "trainer.validate_every=2", "trainer.checkpoint_every=1"]


def diary(file: Path, **fields: int) -> list[str]:
    entries = {"_target_": f"{Diary.__module__}.Diary", "file": file, **fields}
    return [f"+callbacks.diary.{key}={value}" for key, value in entries.items()]


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMED, PLACE)


def test_a_callback_from_the_command_line_sees_each_step_and_validation(tmp_path: Path) -> None:
    args = [*settings(tmp_path, "two updates with muon"), *SHORT_RUN, "trainer.steps=3"]
    command = [sys.executable, "train.py", *args, *diary(tmp_path / "diary")]
    env = {**os.environ, NAMED: "", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [*command, f"output_dir={tmp_path / 'runs'}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    [folder] = (tmp_path / "runs").iterdir()
    start, *rows = metrics_of(folder)
    entries = [line.split() for line in (tmp_path / "diary").read_text().splitlines()]
    steps = [line[1:] for line in entries if line[0] == "step"]
    expected = [[str(row["step"]), "0", pytest.approx(row["loss"])] for row in rows]
    assert [[step, epoch, float(loss)] for step, epoch, loss in steps] == expected
    validations = [(int(line[1]), float(line[2])) for line in entries if line[0] == "validation"]
    assert validations == [(row["step"], row["val/win_rate"]) for row in rows if row["step"] > 1]
    # Two updates a step.
    assert [line[1] for line in entries if line[0] == "optimizer"] == ["AdamW", "ExactMuon"] * 6
    # What it logs joins the row of the step.
    assert [row["diary/step"] for row in rows] == [1, 2, 3] and "diary/step" not in start
    assert not [*folder.glob("lightning*")]
    # Lines of progress, and of settings that are given twice.
    assert all(line.startswith(("20", "warning: ")) for line in result.stderr.splitlines())


def test_early_stopping_ends_a_run_as_a_normal_end_until_it_may_be_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    _, folder = run(tmp_path / "runs", *settings(tmp_path, "sft"), *SHORT_RUN, *STOPS)
    manifest = RunFolder(folder).manifest()
    reason = "stopped early, after step 4 of 6: a callback asked for it"
    assert (manifest["status"], manifest["status_reason"]) == ("finished", reason)
    assert reason in capsys.readouterr().out
    resume(folder)
    assert [row["step"] for row in metrics_of(folder)] == [0, 1, 2, 3, 4]
    resume(folder, "trainer.steps=9")  # it waits on, with what it knew: one more is one too many
    assert [row["step"] for row in metrics_of(folder)] == [0, 1, 2, 3, 4, 5, 6]


def test_a_callback_may_end_the_run_with_any_step_which_is_then_validated(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    args = [*settings(tmp_path, "sft"), *SHORT_RUN, *diary(tmp_path / "diary", ends=3)]
    _, folder = run(tmp_path / "runs", *args)
    assert ["val/win_rate" in row for row in metrics_of(folder)] == [True, False, True, True]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_run_with_callbacks_stops_at_a_signal_and_resumes_bit_for_bit(
    signum: int, tmp_path: Path
) -> None:
    args = [*settings(tmp_path, "grpo with a reference"), *SHORT_RUN, *STOPS, "trainer.steps=8"]
    monitor = f"+callbacks.rate={{_target_: {LIBRARY}.LearningRateMonitor}}"
    roots = [tmp_path / name for name in ("whole", "parts")]
    for root in roots:
        root.mkdir()
    args += [monitor, "logger=tensorboard", "trainer.report=true", "trainer.report_limit=2"]
    start = [partial(run, root, *args) for root in roots]
    _, whole = start[0]()
    stop(Policy, "update", 3, signum, start[1])
    [parts] = roots[1].iterdir()
    assert_saved(parts, 3)
    resume(parts)
    for file in (*whole.glob("events*"), *parts.glob("events*")):
        file.unlink()
    assert_equal_runs(whole, parts)
    rows = metrics_of(whole)[1:]
    assert len(rows) == 4 and all(row["lr-AdamW"] == row["lr"] for row in rows)
    assert len({row["lr"] for row in rows}) > 1


def test_a_callback_that_fails_ends_the_run_in_one_line_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*settings(tmp_path, "sft"), *SHORT_RUN, "trainer.checkpoint_every=9"]
    roots = [tmp_path / name for name in ("whole", "parts")]
    for root in roots:
        root.mkdir()
    _, whole = run(roots[0], *args, *diary(tmp_path / "first"))
    with pytest.raises(SystemExit) as end:
        run(roots[1], *args, *diary(tmp_path / "second", fails=3))
    [parts] = roots[1].iterdir()
    text = capsys.readouterr().err.rstrip()
    line = text.splitlines()[-1]
    assert end.value.code == 1 and "in on_train_batch_end" in text  # for its author
    assert line.startswith("error: callbacks.diary raised LookupError: no such page: the run is")
    assert line.endswith(f"continue with {TRAIN} resume={parts}")
    assert [row["step"] for row in metrics_of(parts)] == [0, 1, 2, 3]
    resume(parts, "+callbacks.diary.fails=9")
    rows = [
        without_clock([{**row, "diary/step": 0} for row in metrics_of(p)]) for p in (whole, parts)
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 7  # but for what the callback could not log
    a, b = (folder / "model" / "model.safetensors" for folder in (whole, parts))
    assert a.read_bytes() == b.read_bytes()


def test_checkpoints_of_lightning_lie_in_a_folder_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    target = f"{{_target_: {LIBRARY}.ModelCheckpoint, monitor: val/win_rate, mode: max}}"
    args = [*settings(tmp_path, "sft"), *SHORT_RUN, f"+callbacks.keep={target}", "trainer.steps=2"]
    _, folder = run(tmp_path / "runs", *args)
    [file] = (folder / "lightning" / "checkpoints").iterdir()
    assert file.name == "epoch=0-step=2.ckpt"
    state = torch.load(file, weights_only=True)
    assert state["global_step"] == 2 and any("embed" in name for name in state["state_dict"])


@pytest.mark.slow
def test_two_processes_stop_together_when_a_callback_of_the_first_asks(tmp_path: Path) -> None:
    args = [*settings(tmp_path, "sft"), *SHORT_RUN, *diary(tmp_path / "diary", ends=3)]
    folders = []
    for devices in (1, 2):
        (root := tmp_path / str(devices)).mkdir()
        folders.append(run(root, *args, f"backend.devices={devices}")[1])
    assert_close_runs(*folders)
    assert [row["step"] for row in metrics_of(folders[1])] == [0, 1, 2, 3]


BAD_CALLBACKS: dict[str, tuple[Any, str]] = {
    "mlx": (["backend=mlx", *STOPS], "callbacks=early_stopping needs backend=lightning, not mlx"),
    "no class": (["+callbacks.mine.patience=3"], "callbacks.mine must have a _target_"),
    "text": (["callbacks=none", "+callbacks.mine=early"], "callbacks.mine must have a _target_"),
}


@pytest.mark.parametrize("case", BAD_CALLBACKS)
def test_callbacks_that_cannot_be_are_refused_before_anything_is_loaded(case: str) -> None:
    args, line = BAD_CALLBACKS[case]
    with pytest.raises(ConfigError, match=line):
        build_experiment(resolve(composed("model=micro", *args)))


def test_null_leaves_a_callback_out_and_a_list_needs_no_names() -> None:
    config = resolve(composed("model=micro", *STOPS))
    config["callbacks"] = {**config["callbacks"], "rate": None}
    assert [*build_experiment(config).callbacks] == ["early_stopping"]
    config["callbacks"] = [*config["callbacks"].values()]
    assert [*build_experiment(config).callbacks] == ["0"]


FOREIGN_CONFIGS = {
    '{"_target_": "os.system", "command": "true"}': "c._target_ must be of lightning.pytorch.",
    '{"_target_": "lightning.pytorch.callbacks.Timer", "duration": [{"_target_": "os.getcwd"}]}': (
        r"c.duration.0._target_ must be of lightning.pytorch.\* or named by you"
    ),
    '{"_target_": "lightning.pytorch.callbacks.EarlyStopping"}': "c: TypeError: .*'monitor'",
    '{"_target_": "lightning.pytorch.callbacks.Early"}': "c: .*Early",
    '{"_target_": "lightning.pytorch.Trainer", "logger": false}': "must be a Diary, not lightning",
}


@pytest.mark.parametrize("node", FOREIGN_CONFIGS)
@pytest.mark.filterwarnings("ignore")
def test_a_config_of_somebody_else_brings_no_class_but_callbacks_of_lightning(node: str) -> None:
    with pytest.raises(ConfigError, match=FOREIGN_CONFIGS[node]):
        instantiate_foreign("c", json.loads(node), Diary, "lightning.pytorch.")
