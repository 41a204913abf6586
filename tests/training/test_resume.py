"""A run that was stopped, at whatever moment, and went on: it equals one that never stopped."""

import random
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.commands import error_of
from tests.helpers.runs import (
    assert_equal_runs,
    assert_saved,
    metrics_of,
    pointers,
    resume,
    run,
    settings,
    stop,
    without_clock,
)
from wordle_rl.backends.torch import backend as lightning_backend
from wordle_rl.commands.resume import describe_rates, read_saved_config
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.rollouts import kinds as scene
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.files import read_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import TRAIN
from wordle_rl.training import step
from wordle_rl.training.checkpoint import RunState, rank_validation
from wordle_rl.training.log import RunLog
from wordle_rl.training.validation import HeldOutPlay, RunReports

pytestmark = pytest.mark.usefixtures("quiet")

MOMENTS: dict[str, tuple[Any, str]] = {  # whose beginning a signal meets
    "loading": (lightning_backend, "build_policy"),
    "report": (RunReports, "report"),
    "validation": (HeldOutPlay, "validate"),
    "rollouts": (scene, "play"),
    "rewards": (step, "credit_rollouts"),
    "update": (Policy, "update"),
    "log": (RunLog, "metrics"),
    "checkpoint": (CheckpointStore, "save"),
}


STOPS = {  # by stage: moment, its call in this process, whole steps that must have been saved
    "sft": [("report", 1, 0), ("log", 1, 0), ("rollouts", 2, 1), ("report", 1, 6)],
    # An update that has begun is finished, with what is due after it; before that, all is undone.
    "grpo with a reference": [("validation", 1, 0), ("rewards", 3, 2), ("update", 2, 4)],
    "grammar": [("rewards", 3, 2), ("update", 2, 4)],
    "two updates with muon": [("checkpoint", 1, 0), ("update", 2, 1), ("validation", 1, 3)],
    "ppo": [("update", 6, 2), ("rewards", 2, 3), ("log", 1, 4)],  # four updates a step
    "ppo behind by one, in phases": [("rewards", 3, 1), ("update", 2, 2), ("update", 6, 4)],
    "dapo": [("update", 2, 2), ("log", 1, 3)],
    "lora": [("loading", 1, -1), ("update", 3, 3), ("rollouts", 2, 4)],
}


@pytest.mark.parametrize(
    "stage",
    ["grammar", *(pytest.param(s, marks=pytest.mark.slow) for s in STOPS if s != "grammar")],
)
def test_stopped_at_any_moment_a_run_equals_one_that_never_stopped(stage, tmp_path, root, capfd):
    # row 22
    overrides = settings(tmp_path, stage)
    _, reference = run(root, *overrides)
    assert [m["step"] for m in metrics_of(reference)] == list(range(7))
    assert sum(m.get("grad_norm", 0.0) > 0.0 for m in metrics_of(reference)) == 6, "it must learn"
    capfd.readouterr()
    folder: list[Path] = []
    for number, (moment, call, saved_step) in enumerate(STOPS[stage]):
        signum = (signal.SIGINT, signal.SIGTERM)[number % 2]
        # Global generators are no part of a run's state.
        random.seed(99), np.random.seed(99), torch.manual_seed(99)
        start = partial(resume, *folder) if folder else partial(run, root, *overrides)
        stop(*MOMENTS[moment], call, signum, start)
        folder[:] = set(root.iterdir()) - {reference}
        assert_saved(*folder, saved_step)
        [hint] = [line for line in capfd.readouterr().out.splitlines() if "resume=" in line]
        assert hint.endswith(f"{TRAIN} resume={folder[0]}")
    resume(*folder)
    assert_equal_runs(*folder, reference)


class Killed(BaseException):
    """In the place of kill -9: nothing that follows runs."""


@pytest.mark.slow
def test_a_run_out_of_patience_is_finished_early_and_so_is_one_that_was_killed(tmp_path, root):
    overrides = [*settings(tmp_path, "dpo"), "trainer.validate_every=1", "rules.max_turns=6"]
    overrides += ["sampling.max_tokens=12"]
    rows = metrics_of(run(root, *overrides)[1])
    ranks = [rank_validation(row) for row in rows]
    flat_steps = [step for step in range(1, 7) if ranks[step] <= max(ranks[:step])]
    end = next(step for step in flat_steps[:-1] if step - 1 in flat_steps)
    _, early_run = run(root, *overrides, "trainer.patience=2")
    assert without_clock(metrics_of(early_run)) == without_clock(rows[: end + 1])
    record = RunFolder(early_run).manifest()
    assert record["status"] == "finished" and f"after step {end} of 6" in record["status_reason"]
    copy = shutil.copytree(early_run, tmp_path / "killed" / early_run.name)
    RunFolder(copy).set_status("running")
    shutil.rmtree(copy / "checkpoints" / f"step_{end:06d}")
    resume(copy)
    assert_equal_runs(early_run, copy)
    resume(early_run)  # changes nothing
    assert "resumes" not in RunFolder(early_run).manifest()


@pytest.mark.slow
def test_killed_before_its_best_checkpoint_was_marked_a_run_exports_that_one(tmp_path, root):
    # row 22
    overrides = [*settings(tmp_path, "sft"), "trainer.steps=3"]
    mark_best, calls = CheckpointStore.mark_best, 0

    def updates(play: Any, *_: Any) -> dict[str, float]:
        states = play.policy.machine.optimizers[0].state.values()
        count = max((float(state["step"]) for state in states), default=0.0)
        return {"val/win_rate": count / 10, "val/mean_guesses_with_losses": 7.0, "val/reward": 0.0}

    def die_at_the_second(store: CheckpointStore, step: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Killed
        mark_best(store, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeldOutPlay, "validate", updates)
        _, reference = run(root, *overrides)
        with pytest.MonkeyPatch.context() as crash, pytest.raises(Killed):
            crash.setattr(CheckpointStore, "mark_best", die_at_the_second)
            run(root, *overrides)
        [folder] = set(root.iterdir()) - {reference}
        assert pointers(folder) == ["step_000003", "step_000000"]
        resume(folder)
    assert pointers(folder) == ["step_000003", "step_000003"]
    assert_equal_runs(folder, reference)


@pytest.mark.parametrize(
    "scores",
    [
        # Nothing is ever won: the reward tells, and of two equal ones the later step.
        [(0.0, 7.0, -4.0), (0.0, 7.0, -2.0), (0.0, 7.0, -2.0), (0.0, 7.0, -3.0)],
        [(0.5, 5.0, 9.0), (0.6, 5.5, 1.0), (0.6, 5.4, 0.0), (0.6, 5.5, 8.0)],
    ],
)
def test_the_best_checkpoint_has_most_wins_then_fewest_guesses_most_reward_or_is_later(scores):
    # row 36
    state, names = RunState(), ("val/win_rate", "val/mean_guesses_with_losses", "val/reward")
    for number, values in enumerate(scores):
        state.note_validation(number, dict(zip(names, values, strict=True)))
    assert state.best_step == 2 and state.improved


def fake_validate(*scores: tuple[float, float, float]) -> Callable[..., dict[str, float]]:
    """In the place of validate(): wins, mean guesses and reward of one validation after another."""
    queue = iter(scores)
    names = ("val/win_rate", "val/mean_guesses_with_losses", "val/reward")
    return lambda *_: dict(zip(names, next(queue), strict=True))


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """A finished run with a report, whose best checkpoint is of step 1 and its newest of step 3."""
    base = tmp_path_factory.mktemp("done")
    (base / "runs").mkdir()
    scores = fake_validate((0.0, 7.0, 0.0), (0.5, 5.0, 0.0), (0.2, 6.0, 0.0), (0.1, 6.0, 0.0))
    overrides = [*settings(base, "sft"), "trainer.steps=3", "trainer.validate_every=1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeldOutPlay, "validate", scores)
        return run(base / "runs", *overrides, "trainer.checkpoint_every=1")[1]


@pytest.fixture
def spoiled(done, tmp_path) -> Path:
    """A copy of that run, without its exported model, which a test may damage."""
    folder = shutil.copytree(done, tmp_path / "run")
    shutil.rmtree(folder / "model")
    (folder / "summary.json").unlink()
    return folder


def weights(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step_{step:06d}" / "model" / "model.safetensors"


def test_a_finished_run_that_is_resumed_stays_as_it_is(done, tmp_path, capsys):
    folder = shutil.copytree(done, tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    summary = resume(folder, "trainer.steps=3")
    assert summary == read_json(folder / "summary.json")
    assert "nothing left to train: all 3 steps are done" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in folder.rglob("*.*") if p.is_file()} == before
    resume(folder, "trainer.show_games=1")  # another setting is a reason to do its end again
    assert RunFolder(folder).manifest()["resumes"]


@pytest.mark.parametrize(("kept", "lost", "first"), [(0, 4, 0), (1, 3, 1)])
def test_lost_rows_of_a_log_are_told(kept, lost, first, spoiled, capsys):
    log = spoiled / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:kept]))
    resume(spoiled)
    lines = [line for line in capsys.readouterr().err.splitlines() if "has lost" in line]
    assert f"{log} has lost {lost} steps, the first one {first}" in lines[0]
    # Of the row that is left, the games of its validation are lost.
    assert kept == len(lines) - 1 == sum("validation_games.jsonl has lost 1 " in t for t in lines)


@pytest.mark.parametrize("damage", ["one byte", "no folder"])
def test_a_damaged_best_checkpoint_is_never_exported(damage, spoiled, capsys):
    if damage == "one byte":
        content = bytearray(weights(spoiled, 1).read_bytes())
        content[-1] ^= 1
        weights(spoiled, 1).write_bytes(content)
    else:
        shutil.rmtree(spoiled / "checkpoints" / "step_000001")
    message = "model.safetensors: its bytes changed" if damage == "one byte" else "checkpoints/best"
    with pytest.warns(UserWarning, match=f"{message}.*step_000003 takes its place"):
        summary = resume(spoiled)
    data = (spoiled / "model" / "model.safetensors").read_bytes()
    assert data == weights(spoiled, 3).read_bytes()
    assert (summary["best_step"], summary["exported_step"]) == (1, 3)
    assert "best checkpoint: step 1 is lost, so step 3 was exported" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_resume_changed_stays_in_force(tmp_path, root, capsys, monkeypatch):
    betas: list[tuple[float, float]] = []  # rates of the moments, whenever a policy is saved
    save_policy = Policy.save

    def save(policy: Policy, to: Path) -> None:
        betas.append(policy.machine.optimizers[0].param_groups[0]["betas"])
        save_policy(policy, to)

    monkeypatch.setattr(Policy, "save", save)
    _, folder = run(root, *settings(tmp_path, "sft"), "trainer.steps=1", "trainer.report=false")
    args = ["optim.lr=1e-5", "optim.schedule=constant", "optim.warmup_steps=0", "optim.beta2=0.5"]
    stop(Policy, "update", 1, signal.SIGINT, partial(resume, folder, "trainer.steps=3", *args))
    assert f"{TRAIN} resume={folder}" in capsys.readouterr().out
    resume(folder)  # as printed
    assert [m.get("lr") for m in metrics_of(folder)[2:]] == [1e-5] * 2
    assert betas[-1] == (0.9, 0.5)
    # Stopped before anything was loaded.
    stop(
        lightning_backend,
        "build_policy",
        1,
        signal.SIGINT,
        partial(resume, folder, "trainer.steps=4", "optim.lr=2e-5"),
    )
    resume(folder)
    assert metrics_of(folder)[4]["lr"] == 2e-5
    resumes = RunFolder(folder).manifest()["resumes"]
    assert resumes[1]["changes"] == resumes[3]["changes"] == {}
    assert resumes[2]["changes"] == {"trainer.steps": [3, 4], "optim.lr": [1e-5, 2e-5]}
    assert read_saved_config(RunFolder(folder)).optim.lr == 2e-5


def test_a_run_without_its_checkpoints_is_refused_and_stays_as_it_is(spoiled, capsys):
    shutil.rmtree(spoiled / "checkpoints")
    before = (spoiled / "metrics.jsonl").read_bytes()
    with pytest.raises(SystemExit) as refusal:
        resume(spoiled)
    error = error_of(capsys.readouterr().err)
    assert refusal.value.code == 2
    assert "checkpoints holds no checkpoint any more" in error
    assert (spoiled / "metrics.jsonl").read_bytes() == before


def test_a_longer_resume_tells_the_jump_of_the_learning_rate():
    optim = Optim(lr=1e-3)
    assert describe_rates(optim, 100, 100, 200) == (
        "learning rate: 0.0001 at step 100 of 100, 0.000546 at step 101 of 200, because "
        "optim.schedule=cosine follows trainer.steps"
    )
    assert describe_rates(optim, 100, 100, 100) is None
    assert describe_rates(optim, 0, 100, 200) is None
    assert describe_rates(Optim(lr=1e-3, schedule="constant"), 100, 100, 200) is None
